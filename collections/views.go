package collections

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Views of applications do not move. One that reads a collection which a switch leaves goes on to show
// the version that was left, and breaks when the upgrade is completed. The plan names those that there
// are. During an upgrade each controller looks as often as it looks at indexes, with one command, so
// that 'get' names those that were made since. No switch waits for them.

// viewsShown is how many views one text names.
const viewsShown = 10

// leftViews is what the latest look has found.
type leftViews struct {
	mu   sync.Mutex
	id   string // of the upgrade
	text string
}

// LeftViews says, for people, which of the views read one of the kinds, directly or through others,
// when a switch leaves the kinds of one version for another; "" for none.
func LeftViews(views []record.View, kinds []record.KindSpec, from, to string) string {
	left := map[string]bool{}
	for _, k := range kinds {
		left[k.Name] = k.Fixed // a managed kind has another name, which no application knows
	}
	names := viewsOver(views, left)
	if len(names) == 0 {
		return ""
	}
	shown := strings.Join(names[:min(viewsShown, len(names))], ", ")
	if len(names) > viewsShown {
		shown += ", ..."
	}
	return fmt.Sprintf("%d views read collections that the switch leaves (%s): they go on to show %s, and break when it is completed; make them anew in the database of %s", len(names), shown, from, to)
}

// viewsOver are the views that read one of the names, directly or through other views, in order.
func viewsOver(views []record.View, names map[string]bool) (over []string) {
	reads := maps.Clone(names)
	for again := true; again; {
		again = false
		for _, v := range views {
			if !reads[v.Name] && slices.ContainsFunc(v.Reads, func(name string) bool { return reads[name] }) {
				reads[v.Name], again = true, true
				over = append(over, v.Name)
			}
		}
	}
	slices.Sort(over)
	return over
}

// ViewsLeft is LeftViews of the upgrade that runs, as this process has seen last.
func (m *Maintainer) ViewsLeft(d upgradestate.Deployment) string {
	m.left.mu.Lock()
	defer m.left.mu.Unlock()
	if d.Upgrade == nil || m.left.id != d.Upgrade.ID {
		return ""
	}
	return m.left.text
}

// KeepViews looks at the views of the current version while an upgrade runs, until ctx ends. Every
// controller does it, as KeepIndexes.
func (m *Maintainer) KeepViews(ctx context.Context) error {
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(ctx context.Context, d upgradestate.Deployment) (time.Duration, error) {
			return checkForMissing, m.lookAtViews(ctx, d)
		},
		Same: func(before, now upgradestate.Deployment) bool {
			return before.Epoch == now.Epoch && (before.Upgrade == nil) == (now.Upgrade == nil) &&
				(now.Upgrade == nil || before.Upgrade.ID == now.Upgrade.ID && before.Upgrade.State == now.Upgrade.State)
		},
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				m.Log.Warn("views of applications cannot be looked at", zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// lookAtViews notes which views the upgrade leaves behind. During the switch itself it asks nothing.
func (m *Maintainer) lookAtViews(ctx context.Context, d upgradestate.Deployment) error {
	u := d.Upgrade
	if u == nil || u.State == upgradestate.Switching || m.Views == nil {
		return nil
	}
	dir, err := m.Registry.Direction(d.CurrentVersion, u.TargetVersion)
	if err != nil {
		return err
	}
	text := ""
	if kinds := dir.SourceKinds(); slices.ContainsFunc(kinds, func(k record.KindSpec) bool { return k.Fixed }) {
		views, err := m.Views(ctx, d.CurrentVersion)
		if err != nil {
			return fmt.Errorf("views of %s: %w", d.CurrentVersion, err)
		}
		text = LeftViews(views, kinds, d.CurrentVersion, u.TargetVersion)
	}
	m.left.mu.Lock()
	defer m.left.mu.Unlock()
	m.left.id, m.left.text = u.ID, text
	return nil
}
