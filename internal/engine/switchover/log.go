package switchover

import (
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// namedKinds is the number of kinds that one log line names. There may be 1,000.
const namedKinds = 5

// logOperations logs the confirmed and the abandoned operations of one pass. It writes one line for
// each version and reason, for any number of kinds.
func (r *Driver) logOperations(actions []upgradestate.Action, events []upgradestate.Event, took time.Duration) {
	type group struct{ text, version, reason string }
	// Group the lines: one per kind would hide everything else in the log.
	kinds := map[group][]string{}
	var order []group
	for i, a := range actions {
		var g group
		var kind string
		switch a := a.(type) {
		case upgradestate.Execute:
			g, kind = group{"confirmed operations", a.Version, string(a.Pending.Reason)}, a.Place.Kind
		case upgradestate.Prevent:
			g, kind = group{"abandoned operations", a.Version, string(a.Pending.Reason)}, a.Place.Kind
			// The rename had taken effect before the abort could prevent it.
			if _, moved := events[i].(upgradestate.Confirmed); moved {
				g.text = "confirmed operations"
			}
		default:
			continue
		}
		if events[i] == nil {
			continue // it failed; Run logs the error
		}
		if kinds[g] == nil {
			order = append(order, g)
		}
		kinds[g] = append(kinds[g], kind)
	}
	for _, g := range order {
		named := kinds[g][:min(namedKinds, len(kinds[g]))]
		r.log.Info(g.text, zap.String("version", g.version), zap.String("reason", g.reason), zap.Int("count", len(kinds[g])),
			zap.Strings("kinds", named), zap.Duration("took", took))
	}
}
