package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// closeTimeout bounds how long the end of a stream may take.
const closeTimeout = 5 * time.Second

// Guard has check asked whenever a stream of a namespace's changes is opened: a stream of
// another database does not report what is missed, and its positions would be stored.
func Guard(ns record.Namespace, check func(context.Context) error) record.Namespace {
	g := guarded{ns, GuardWatcher(ns, check)}
	if m, ok := ns.(record.Monitor); ok {
		return measured{g, m}
	}
	return g
}

// measured is a guarded namespace whose database can be measured.
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

// GuardWatcher is Guard for those that only watch.
func GuardWatcher(w record.Watcher, check func(context.Context) error) record.Watcher {
	return watcher{w, check}
}

type watcher struct {
	record.Watcher
	check func(context.Context) error
}

// Watch asks once the stream is open: what it was opened on is then what was checked. It
// also asks where none can be opened: in another database a position means nothing, and
// "the history is lost" would be taken for a reason to compare everything with it.
func (w watcher) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := w.Watcher.Watch(ctx, from, kinds)
	return w.checked(ctx, s, err)
}

// Follow asks as Watch does.
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
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = s.Close(stop) // nobody follows it
		return nil, err
	}
	return s, nil
}

// Remember is Deployments that answers with what it knows when the coordination store does
// not answer, for those that go on without it.
func Remember(ds Deployments, wait time.Duration, absent error) Deployments {
	return &remembered{ds: ds, wait: wait, absent: absent}
}

type remembered struct {
	ds     Deployments
	wait   time.Duration
	absent error // no such deployment: an answer as well

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
	case r.last.Name != "" && ctx.Err() == nil && !errors.Is(err, r.absent):
		return r.last, nil
	}
	return d, err
}

// Belongs refuses a version's database, before anything uses it, that is not the one that the
// deployment means, or is of another time. Where there is no such deployment, which ds
// reports by the error absent, nothing of it may have lived there.
func Belongs(ctx context.Context, ds Deployments, absent error, deployment, version string, db record.Marker) error {
	mine := map[string]record.Marker{version: db}
	err := Check(ctx, ds, mine)
	if errors.Is(err, absent) {
		err = Unlived(ctx, deployment, mine)
	}
	var mismatch *MismatchError
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.As(err, &mismatch):
		return &MismatchError{Found: mismatch.Found} // whose it is, the caller adds
	default:
		return fmt.Errorf("%w: %w", record.ErrUnavailable, err) // neither database nor etcd refused
	}
}
