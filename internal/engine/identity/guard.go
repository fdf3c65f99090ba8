package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Guard runs check whenever a stream of a namespace's changes opens. A stream of the wrong database
// would not report the missed changes, and its positions would be stored.
func Guard(ns record.Namespace, check func(context.Context) error) record.Namespace {
	g := guarded{ns, GuardWatcher(ns, check)}
	// Keep the optional ability: the embedding in guarded hides it.
	if m, ok := ns.(record.Monitor); ok {
		return measured{g, m}
	}
	return g
}

// measured is a guarded namespace that can also measure its database.
type measured struct {
	guarded
	record.Monitor
}

type guarded struct {
	record.Namespace
	watcher record.Watcher
}

func (g guarded) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	return g.watcher.Watch(ctx, from, kinds)
}

func (g guarded) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	return g.watcher.Follow(ctx, from, toks)
}

// GuardWatcher is Guard for a plain Watcher.
func GuardWatcher(w record.Watcher, check func(context.Context) error) record.Watcher {
	return watcher{w, check}
}

type watcher struct {
	record.Watcher
	check func(context.Context) error
}

// Watch checks after the stream is open, so the check covers the database that the stream reads. It
// also checks when opening fails. In another database a position means nothing, and the engine
// would take "the history is lost" as a reason to compare everything with that database.
func (w watcher) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := w.Watcher.Watch(ctx, from, kinds)
	return w.checked(ctx, s, err)
}

// Follow checks as Watch does.
func (w watcher) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	s, err := w.Watcher.Follow(ctx, from, toks)
	return w.checked(ctx, s, err)
}

func (w watcher) checked(ctx context.Context, s record.Stream, err error) (record.Stream, error) {
	if err != nil {
		var mismatch *MismatchError
		if errors.As(w.check(ctx), &mismatch) {
			return nil, mismatch
		}
		return nil, err
	}
	if err := w.check(ctx); err != nil {
		_ = closing.Bounded(ctx, s.Close) // the stream is unused
		return nil, err
	}
	return s, nil
}

// Remember returns a Deployments that answers with the last known record while the coordination
// store does not answer within wait. absent is the store's error for an unknown deployment, which
// counts as an answer. Servers use it to continue without etcd.
func Remember(ds Deployments, wait time.Duration, absent error) Deployments {
	return &remembered{ds: ds, wait: wait, absent: absent}
}

type remembered struct {
	ds     Deployments
	wait   time.Duration
	absent error // error for no such deployment

	mu   sync.Mutex
	last upgradestate.Deployment
}

func (r *remembered) Get(ctx context.Context) (upgradestate.Deployment, error) {
	bounded, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	d, err := r.ds.Get(bounded)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.last = d
	// Only the store's silence is bridged, not the caller's own end.
	case r.last.Name != "" && ctx.Err() == nil && !errors.Is(err, r.absent):
		return r.last, nil
	}
	return d, err
}

// Belongs refuses a version's database before use if the deployment means another one, or if one
// side is outdated. ds returns absent for an unknown deployment; then the database must hold no
// data of it. A failure to check is a record.ErrUnavailable.
func Belongs(ctx context.Context, ds Deployments, absent error, deployment, version string, db record.Marker) error {
	mine := map[string]record.Marker{version: db}
	err := Check(ctx, ds, mine)
	if errors.Is(err, absent) {
		// A deployment that etcd does not know may be lost; its data must not be overwritten.
		err = Unlived(ctx, deployment, mine)
	}
	var mismatch *MismatchError
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.As(err, &mismatch):
		return &MismatchError{Found: mismatch.Found, Lost: mismatch.Lost} // the caller adds the version
	default:
		return fmt.Errorf("%w: %w", record.ErrUnavailable, err) // neither database nor etcd refused
	}
}
