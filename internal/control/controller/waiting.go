package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/upgradestate"
)

// waiting holds the reason why this process cannot start its work, or nil.
type waiting struct {
	mu  sync.Mutex
	err error
}

// set stores the reason, and reports whether its text differs from the last one.
func (w *waiting) set(err error) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = (err == nil) != (w.err == nil) || err != nil && err.Error() != w.err.Error()
	w.err = err
	return changed
}

func (w *waiting) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// start is the time until a controller works, or has to wait. The zero value is a start that is not over.
type start struct {
	make, once sync.Once
	ended      chan struct{}
}

func (s *start) done() chan struct{} {
	s.make.Do(func() { s.ended = make(chan struct{}) })
	return s.ended
}

func (s *start) over() { s.once.Do(func() { close(s.done()) }) }

// retryEngine is the pause before another attempt at work that failed, when a person may have to act
// first.
const retryEngine = 10 * time.Second

// retryPrepare is the pause before another attempt to reach the databases.
const retryPrepare = time.Second

// awaitPrepared repeats prepare while databases are unavailable. It calls lead after the first
// failed attempt, if the deployment has namespaces.
func (a *App) awaitPrepared(ctx context.Context, lead func()) (upgradestate.Deployment, error) {
	start := time.Now()
	for {
		d, err := a.prepare(ctx)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err() // the end of ctx is the real reason
		}
		var mismatch *identity.MismatchError
		if errors.As(err, &mismatch) {
			// The cluster may have moved collections while no controller ran.
			accepted, lacks := a.adoption.acceptMoved(ctx)
			if accepted {
				continue
			}
			if lacks != nil {
				err = fmt.Errorf("%w; %w", err, lacks)
			}
		}
		if err == nil || ctx.Err() != nil || !a.backend.Unavailable(err) {
			a.waiting.set(nil)
			return d, err
		}
		if a.waiting.set(err) {
			a.log.Warn("controller waits for the databases", zap.Error(err))
		}
		a.started.over()
		switch {
		// An upgrade may be running, and only a leader can complete its abort.
		case lived(d):
			lead()
		// A new deployment gives up: the address may be a typing mistake.
		case time.Since(start) >= a.opts.StartupWait:
			return d, err
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(retryPrepare):
		}
	}
}

// missing returns the errors of all databases that are kept in sync and are not usable.
func (a *App) missing() error { return errors.Join(a.missingEach()...) }

// missingEach is missing, with one error for each problem.
func (a *App) missingEach() (errs []error) {
	for _, db := range a.cfg.Databases {
		if ns := a.databases[db.Version]; ns != nil && !db.Disabled {
			at := upgradestate.BlockPlace{Version: db.Version}
			errs = append(errs, upgradestate.Blocked(upgradestate.BlockController, at, ns.Problem()))
			if e, ok := ns.(keys.Encrypted); ok {
				errs = append(errs, upgradestate.Blocked(upgradestate.BlockController, at, e.Unreadable()))
			}
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// openRest opens the databases that prepare did not wait for. No other code may need them for a
// long time, and operators want to see when they are reachable.
func (a *App) openRest(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, db := range a.cfg.Databases {
		if ns := a.databases[db.Version]; ns != nil && !db.Disabled {
			g.Go(func() error { return ns.Keep(ctx) })
		}
	}
	return g.Wait()
}

// waits returns the conditions that this process waits for, for the API.
func (a *App) waits() []upgradestate.Blocker {
	errs := a.missingEach()
	if err := a.waiting.why(); err != nil {
		errs = []error{err}
	}
	// A database with a moved collection cannot be opened. That alone does not tell what to do.
	waits := a.collectionWaits() // shards and checkpoints report other conditions
	for _, err := range errs {
		b := upgradestate.BlockerOf(upgradestate.BlockController, err)
		b.Place.Controller = a.opts.ID
		b.Text = fmt.Sprintf("controller %s: %s", a.opts.ID, strings.ReplaceAll(b.Text, "\n", "; "))
		waits = append(waits, b)
	}
	return waits
}

// collectionWaits returns the replaced and the moved collections that this controller, as the leader,
// does not accept yet.
func (a *App) collectionWaits() []upgradestate.Blocker {
	return append(a.successors.replacements.why(), a.adoption.moves.why()...)
}

// starting returns why this process has not prepared a version yet, or its deployment if version is
// empty. "" means that it has, or that the version is not configured here.
func (a *App) starting(version string) string {
	if err := a.waiting.why(); err != nil {
		return err.Error()
	}
	if !a.running.Load() {
		return "it checks its databases"
	}
	ns := a.databases[version]
	if ns == nil {
		return ""
	}
	if err := ns.Problem(); err != nil {
		return err.Error()
	}
	if a.provisioning.postponed.has(version) {
		return "the collections of " + version + " are being prepared"
	}
	return ""
}
