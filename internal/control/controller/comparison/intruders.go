package comparison

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Intruders detects foreign writes to the target while a switch runs. Engines watch the target up
// to the start of the switch (upgradestate.Upgrade.TargetSince). Intruders reads from there to the
// seal, after which the target has a name that other clients do not know.
type Intruders struct {
	*Comparison
	// Position returns the present position in the changes of a version's database, encoded as in
	// the record.
	Position func(ctx context.Context, version string) (string, error)
}

var _ switchover.Target = Intruders{}

// Since returns the present position in the target's changes. The engines soon reach it.
func (i Intruders) Since(ctx context.Context, version string) (string, error) {
	at, err := i.Position(ctx, version)
	if err != nil {
		return "", err
	}
	// An engine without events learns only every second how far it has read. Nudge writes an event.
	return at, i.Namespaces[version].Nudge(ctx)
}

// Changed reads the changes between the start of the switch and the seal. It returns nil if there
// are none, and otherwise a function that compares the changed groups.
func (i Intruders) Changed(ctx context.Context, d upgradestate.Deployment) (func(context.Context, upgradestate.Deployment) error, error) {
	var from record.Position
	if err := json.Unmarshal([]byte(d.Upgrade.TargetSince), &from); err != nil {
		return nil, fmt.Errorf("place in the target's changes: %w", err)
	}
	c, err := i.comparer(d)
	if err != nil {
		return nil, err
	}
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	in, err := c.Intruded(ctx, i.Namespaces[target.Version], from, syncer.Tokens(d, target.Version), seals(target))
	if err != nil || len(in.Groups)+len(in.Orphans) == 0 {
		return nil, err
	}
	if i.equal(ctx, d, c, in) {
		return nil, nil
	}
	return func(ctx context.Context, d upgradestate.Deployment) error { return i.differ(ctx, d, c, in) }, nil
}

// equal compares the changed groups early, while the driver confirms the last renames. The seals are
// set, so the target no longer changes, and the source is fenced and drained: groups that are equal
// now stay equal. The record does not tell yet whether the source still has its name. Reads check
// the identity of a collection, so a read by the wrong name fails and never finds nothing. Any other
// result than equal is left to the comparison after the renames.
func (i Intruders) equal(ctx context.Context, d upgradestate.Deployment, c *verify.Comparer, in verify.Intruded) bool {
	for _, moved := range []struct {
		version string
		reason  upgradestate.PendingReason
	}{{d.Upgrade.TargetVersion, upgradestate.PendingSeal}, {d.CurrentVersion, upgradestate.PendingLast}} {
		var err error
		if d, err = confirmed(d, moved.version, moved.reason); err != nil {
			return false
		}
		err = i.differ(ctx, d, c, in)
		if err == nil || errors.Is(err, switchover.ErrIntruded) {
			return err == nil
		}
	}
	return false
}

// confirmed returns the record as it is once the announced operations of a version are confirmed.
func confirmed(d upgradestate.Deployment, version string, reason upgradestate.PendingReason) (upgradestate.Deployment, error) {
	ns, _ := d.Namespace(version)
	var all upgradestate.Together
	for _, k := range ns.Kinds {
		if p := k.Pending; p != nil && p.Reason == reason {
			all.Events = append(all.Events, upgradestate.Confirmed{Version: version, Kind: k.Kind, To: p.To, From: p.From})
		}
	}
	if len(all.Events) == 0 {
		return d, nil
	}
	return upgradestate.Apply(d, all)
}

// seals returns, by kind, the names and marks that show a kind's seal in the changes. The class of
// its fence decides which of the two it is.
func seals(target upgradestate.Namespace) map[string][]string {
	out := map[string][]string{}
	for _, k := range target.Kinds {
		out[k.Kind] = []string{k.Physical, k.Fenced}
		// The seal is announced and perhaps not set yet. The present name must not end the kind.
		if p := k.Pending; p != nil && p.Reason == upgradestate.PendingSeal {
			out[k.Kind] = []string{p.To}
		}
	}
	return out
}

// differ compares the changed groups with the source. Both sides are fenced, so the result is
// final.
func (i Intruders) differ(ctx context.Context, d upgradestate.Deployment, c *verify.Comparer, in verify.Intruded) error {
	var src, dst transform.View
	g, both := errgroup.WithContext(ctx) // writes are held meanwhile
	for v, version := range map[*transform.View]string{&src: d.CurrentVersion, &dst: d.Upgrade.TargetVersion} {
		g.Go(func() (err error) {
			*v, err = view(both, i.Namespaces[version], syncer.Tokens(d, version))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	differ, err := c.Groups(ctx, src, dst, in.Groups)
	if err != nil {
		return fmt.Errorf("compare the groups that changed in the target: %w", err)
	}
	left := verify.Intruded{Orphans: in.Orphans}
	if len(differ)+len(left.Orphans) == 0 {
		return nil
	}
	// Waived groups may differ, whoever changed them.
	waived, err := i.waived(ctx, d, d.Upgrade.TargetVersion)
	if err != nil {
		return err
	}
	for _, g := range differ {
		if !waived.Groups[g.ID] {
			left.Groups = append(left.Groups, g.ID)
		}
	}
	if n := len(left.Groups) + len(left.Orphans); n > 0 {
		return fmt.Errorf("%w: others changed %d groups of %s while the switch began: %s: controllers rebuild them",
			switchover.ErrIntruded, n, d.Upgrade.TargetVersion, strings.Join(left.Names(c), ", "))
	}
	return nil
}

func (i Intruders) comparer(d upgradestate.Deployment) (*verify.Comparer, error) {
	source, target := i.Namespaces[d.CurrentVersion], i.Namespaces[d.Upgrade.TargetVersion]
	if source == nil || target == nil {
		return nil, errors.New("both versions must be configured")
	}
	dir, err := i.Registry.Direction(d.CurrentVersion, d.Upgrade.TargetVersion)
	if err != nil {
		return nil, err
	}
	return verify.New(source, target, dir), nil
}
