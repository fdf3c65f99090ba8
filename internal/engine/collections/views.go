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

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Views of applications are not moved. After a switch, a view over an old collection still shows
// the old version, and it breaks when the upgrade is completed. The plan names such views. During
// an upgrade each controller checks for new ones as often as for indexes, with one command, and
// 'get' names them. No switch waits for them.

// viewsShown is the number of views that one text names.
const viewsShown = 10

// leftViews holds the result of the latest check.
type leftViews struct {
	mu   sync.Mutex
	id   string // of the upgrade
	text string
}

// LeftViews describes, for display, the views that a switch leaves behind. These are the views that
// read one of the kinds, directly or through other views. from is the version that serves before
// the switch, and to the one after it. "" means that there are none.
func LeftViews(views []record.View, kinds []record.KindSpec, from, to string) string {
	left := map[string]bool{}
	for _, k := range kinds {
		left[k.Name] = k.Fixed // no application knows the name of a managed kind
	}
	names := viewsOver(views, left)
	if len(names) == 0 {
		return ""
	}
	shown := strings.Join(names[:min(viewsShown, len(names))], ", ")
	if len(names) > viewsShown {
		shown += ", ..."
	}
	return fmt.Sprintf("%d views read collections of the former version (%s): they continue to show %s, and break after 'complete'; create them again in the database of %s", len(names), shown, from, to)
}

// viewsOver returns the sorted names of views that read one of the names, directly or through
// others.
func viewsOver(views []record.View, names map[string]bool) (over []string) {
	reads := maps.Clone(names)
	// Repeat until no view is added, because views may read views in any order.
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

// ViewsLeft returns LeftViews for the running upgrade, from this process's latest check.
func (m *Maintainer) ViewsLeft(d upgradestate.Deployment) string {
	m.left.mu.Lock()
	defer m.left.mu.Unlock()
	if d.Upgrade == nil || m.left.id != d.Upgrade.ID {
		return ""
	}
	return m.left.text
}

// KeepViews checks the views of the current version while an upgrade runs, until ctx ends. Every
// controller runs it, like KeepIndexes.
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
				m.Log.Warn("cannot read views of applications", zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// lookAtViews stores which views the upgrade leaves behind. During the switch it sends no command.
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
	// Only fixed-name kinds have names that applications can know.
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
