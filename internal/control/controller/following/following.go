// Package following begins data updates by themselves after switches of other deployments.
//
// # Terms
//
// Records of this deployment hold keys of another deployment's records. A task that follows
// (transform.Task.Follow) brings them to the keys of one version of the other deployment. A switch
// of the other deployment to that version makes the task due. A pass is one run of the task over all
// records. Passes repeat, with growing pauses, until one finds nothing new (upgradestate.Following).
//
// # Guarantees
//
//   - A pass begins in the same transition of the record that notes it. So each switch is followed,
//     and no pass begins twice, whenever controllers stop.
//   - The transition holds only if the other deployment's record is still the one of the decision.
//     So a controller that paused begins nothing after a further switch.
//   - Every controller looks, and any of them acts. The record decides between them.
//   - A move of the other deployment within one version is no switch: it changes no keys.
//   - A switch back of the other deployment ends a pass that runs. Its keys would find nothing.
//   - A switch that no controller saw is followed later, because the decision compares the latest switch
//     with the one that was followed last.
//
// # What it does not own
//
// It does not own the work of a pass (backfill), the decision whether a pass may begin now
// (upgradestate), or the keys that a task writes (transform/lens).
//
// Begin to read at Follower.step.
//
// It is not for users and may change with any version.
package following

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

const (
	// look is the time between two looks at the other deployments.
	look = 2 * time.Second
	// firstPause is the time between the first and the second pass after a switch. Each further one is
	// pauseGrowth times longer, so that the last pass finds the writes of slow clients.
	firstPause  = 5 * time.Second
	pauseGrowth = 4
)

// Parts are the dependencies of a Follower.
type Parts struct {
	Deployments *deployment.Store
	Tasks       []transform.Task // those that do not follow are ignored
	// Import returns another deployment by its service in Imports of tasks.
	Import func(service string) (preflight.Import, bool)
	// May returns an error if a task lacks something, for an operator.
	May func(ctx context.Context, t transform.Task) error
	Log *zap.Logger
}

// Follower begins the tasks that follow. It is safe for concurrent use.
type Follower struct {
	Parts
	tasks []followed
	ended map[string]ended // passes, by task; only Run's goroutine uses it

	mu    sync.Mutex
	shown []*pb.Following // values are never modified
}

// ended is a pass with the time when this process first saw its end.
type ended struct {
	run string
	at  time.Time
}

// followed is a task that follows, with the other deployment and its version that has the keys.
type followed struct {
	transform.Task
	deployment, version string
	versions            [2]string // between which the keys change, the older first
}

// names reports whether imports name an API version of the other deployment.
func (t followed) names(version string) bool { return slices.Contains(t.versions[:], version) }

// New returns a Follower. Tasks of services without an Import do not follow.
func New(p Parts) *Follower {
	f := &Follower{Parts: p, ended: map[string]ended{}}
	for _, t := range p.Tasks {
		if !t.Follow {
			continue
		}
		if i, known := p.Import(t.Imports[0].Service); known {
			f.tasks = append(f.tasks, followed{t, i.Deployment, i.Version(t.Imports[0].Keys), [2]string{i.Older, i.Newer}})
		}
	}
	return f
}

// Run begins passes until ctx ends. Without a task that follows it returns at once.
func (f *Follower) Run(ctx context.Context) error {
	if len(f.tasks) == 0 {
		return nil
	}
	return recordloop.Aside(ctx, f.Deployments, f.Log, func(d upgradestate.Deployment) (time.Duration, error) {
		return look, f.step(ctx, d)
	})
}

// Shown returns the tasks that follow within the current version, and the conditions that they wait
// for, as of the latest look. The values must not be modified.
func (f *Follower) Shown() []*pb.Following {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown
}

// step looks at the other deployments once, ends a pass that has become wrong, and begins one that
// is due.
func (f *Follower) step(ctx context.Context, d upgradestate.Deployment) error {
	var errs []error
	var shown []*pb.Following
	others := map[string]seen{}
	for _, t := range f.tasks {
		if t.Version != upgradestate.APIVersion(d.CurrentVersion) {
			continue
		}
		// Several tasks may follow one deployment.
		if _, read := others[t.deployment]; !read {
			others[t.deployment] = f.read(ctx, t.deployment)
		}
		waits, after, err := f.follow(ctx, d, t, others[t.deployment])
		d = after
		if err != nil {
			errs = append(errs, fmt.Errorf("data update %s: %w", t.Name, err))
			waits = err.Error()
		}
		shown = append(shown, &pb.Following{Task: t.Name, Deployment: t.deployment, Version: t.version, WaitsFor: waits})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = shown
	return errors.Join(errs...)
}

// seen is another deployment's record, with the store that it came from.
type seen struct {
	store  *deployment.Store
	record upgradestate.Deployment
	err    error
}

func (f *Follower) read(ctx context.Context, name string) (s seen) {
	if s.store, s.err = f.Deployments.Other(name); s.err == nil {
		s.record, s.err = s.store.Get(ctx)
	}
	return s
}

// follow does the next thing for one task. It returns the condition that the task waits for,
// and the record after the act.
func (f *Follower) follow(ctx context.Context, d upgradestate.Deployment, t followed, other seen) (waits string, after upgradestate.Deployment, err error) {
	switch {
	case errors.Is(other.err, deployment.ErrNotFound):
		return fmt.Sprintf("%v in this etcd: correct imports", other.err), d, nil
	case other.err != nil:
		return "", d, other.err
	}
	serves := upgradestate.APIVersion(other.record.CurrentVersion)
	// A version that imports do not name is no way back: its keys may be the same.
	if _, stray := upgradestate.Stray(d, t.deployment, serves); stray && d.Update.Name == t.Name && t.names(serves) {
		if d, err = f.withdraw(ctx, d, t, other); err != nil {
			return "", d, err
		}
	}
	latest := upgradestate.SwitchID(other.record)
	switch {
	case !t.names(serves):
		return fmt.Sprintf("versions in imports that name %s, which %s serves now: [%s, %[1]s], if it has the keys of %[4]s", serves, t.deployment, t.versions[0], t.versions[1]), d, nil
	case serves != t.version || latest == "":
		return fmt.Sprintf("a switch of %s to %s", t.deployment, t.version), d, nil
	}
	pass := 1
	before, known := upgradestate.FollowingOf(d, t.Name)
	switch {
	case known && before.Counts(d, latest):
		if !before.Again || f.rests(before) {
			return "", d, nil
		}
		pass = before.Passes + 1
	// A pass would take away the other key where an operator wants to hold both.
	case moved(other.record) && known && !overdue(d, t):
		return "", d, nil
	case moved(other.record) && !overdue(d, t):
		return fmt.Sprintf("a switch of %s to %s", t.deployment, t.version), d, nil
	}
	if d.Update != nil {
		return fmt.Sprintf("the end of data update %s", d.Update.Name), d, nil
	}
	if err := f.May(ctx, t.Task); err != nil {
		return err.Error(), d, nil
	}
	return f.begin(ctx, d, t, other, upgradestate.Follows{Deployment: t.deployment, Version: t.version, Switch: latest, Pass: pass})
}

// moved reports whether the latest switch stayed within one API version. It changed no keys.
func moved(d upgradestate.Deployment) bool {
	last := d.LastSwitch
	return last != nil && upgradestate.APIVersion(last.From) == upgradestate.APIVersion(last.To)
}

// overdue reports whether a task is due whatever the latest switch of the other deployment was: its
// passes have not ended well, this deployment has switched since, or another task has followed a
// switch to the other version since. The switch back was then not seen.
func overdue(d upgradestate.Deployment, t followed) bool {
	own := slices.IndexFunc(d.Following, func(e upgradestate.Following) bool { return e.Task == t.Name })
	if own >= 0 {
		if before := d.Following[own]; before.Again || !before.Counts(d, before.Switch) {
			return true
		}
	}
	// The latest pass is the last entry.
	return slices.ContainsFunc(d.Following[own+1:], func(e upgradestate.Following) bool {
		return e.Deployment == t.deployment && e.Version != t.version && t.names(e.Version)
	})
}

// rests reports whether the pause after a pass goes on. It counts from the time when this process
// saw the end of the pass, so a clock that steps changes nothing.
func (f *Follower) rests(before upgradestate.Following) bool {
	if f.ended[before.Task].run != before.Run {
		f.ended[before.Task] = ended{before.Run, time.Now()}
	}
	pause := firstPause
	for range before.Passes - 1 {
		pause *= pauseGrowth
	}
	return time.Since(f.ended[before.Task].at) < pause
}

// withdraw ends the running pass of a task, because the other deployment went back.
func (f *Follower) withdraw(ctx context.Context, d upgradestate.Deployment, t followed, other seen) (upgradestate.Deployment, error) {
	why := fmt.Sprintf("%s serves %s again", t.deployment, upgradestate.APIVersion(other.record.CurrentVersion))
	after, err := f.Deployments.Apply(ctx, upgradestate.CancelUpdate{ID: d.Update.ID, Reason: why}, other.store.Condition(other.record))
	if errors.Is(err, deployment.ErrOwnership) || errors.Is(err, upgradestate.ErrOutdated) {
		return d, nil // one of the records has changed: the next look decides
	}
	if err != nil {
		return d, err
	}
	f.Log.Info("a data update that began by itself ends", zap.String("update", t.Name), zap.String("because", why))
	return after, nil
}

// begin begins a pass, unless either record has changed since the decision.
func (f *Follower) begin(ctx context.Context, d upgradestate.Deployment, t followed, other seen, follows upgradestate.Follows) (waits string, after upgradestate.Deployment, err error) {
	u := upgradestate.Update{
		ID:   "d-" + strings.ToLower(rand.Text()[:16]), // the same form as ids of operators' runs
		Name: t.Name, Version: d.CurrentVersion, Kind: t.Kind, Hash: t.Hash(),
	}
	after, err = f.Deployments.Apply(ctx, upgradestate.BeginUpdate{Update: u, Follows: &follows}, other.store.Condition(other.record))
	refused := &upgradestate.RefusedError{}
	switch {
	case errors.Is(err, deployment.ErrOwnership):
		return "", d, nil // the other record has changed: the next look decides
	case errors.Is(err, upgradestate.ErrOutdated):
		return "the end of a switch, a rollback or a restore of this deployment", d, nil
	case errors.As(err, &refused):
		return cmp.Or(refused.Reason, err.Error()), d, nil
	case err != nil:
		return "", d, err
	}
	f.Log.Info("a data update begins by itself", zap.String("update", t.Name), zap.String("after the switch of", t.deployment),
		zap.String("to", t.version), zap.Int("pass", follows.Pass))
	return "", after, nil
}
