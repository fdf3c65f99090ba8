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

	"dbcontroller.dev/upgradestate"
)

// waiting is why this process cannot begin its work; nothing once it has.
type waiting struct {
	mu  sync.Mutex
	err error
}

// set notes the reason, and reports whether it is another one than before.
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

// retryPrepare is how long a controller rests before it looks again whether the databases
// that it needs are there.
const retryPrepare = time.Second

// awaitPrepared prepares, again and again while databases are unavailable. lead is called
// when that takes longer than a moment and there is a deployment to lead.
func (a *App) awaitPrepared(ctx context.Context, lead func()) (upgradestate.Deployment, error) {
	start := time.Now()
	for {
		d, err := a.prepare(ctx)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err() // who is told to end does not end for want of a database
		}
		if err == nil || ctx.Err() != nil || !a.backend.Unavailable(err) {
			a.waiting.set(nil)
			return d, err
		}
		if a.waiting.set(err) {
			a.log.Warn("controller waits for the databases", zap.Error(err))
		}
		switch {
		case lived(d):
			lead()
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

// missing says which databases of those that are kept in sync are not open, and why.
func (a *App) missing() error {
	var errs []error
	for _, db := range a.cfg.Databases {
		if ns := a.databases[db.Version]; ns != nil && !db.Disabled {
			errs = append(errs, ns.Problem())
			if e, ok := ns.(Encrypted); ok {
				errs = append(errs, e.Unreadable())
			}
		}
	}
	return errors.Join(errs...)
}

// openRest opens the databases that prepare did not wait for. Nothing else may touch one
// for long, and an operator wants to know when it is there.
func (a *App) openRest(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, db := range a.cfg.Databases {
		if ns := a.databases[db.Version]; ns != nil && !db.Disabled {
			g.Go(func() error { return ns.Keep(ctx) })
		}
	}
	return g.Wait()
}

// waits are what this process waits for, for the API.
func (a *App) waits() []string {
	err := a.waiting.why()
	if err == nil {
		err = a.missing()
	}
	if err == nil {
		return a.replacements.why() // the rest is in shards and their checkpoints
	}
	return []string{fmt.Sprintf("controller %s: %s", a.opts.ID, strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// postponed are upgrades that could not be announced for want of their databases.
type postponed struct {
	mu       sync.Mutex
	versions []string
}

func (a *App) postpone(version string) {
	a.postponed.mu.Lock()
	defer a.postponed.mu.Unlock()
	if !slices.Contains(a.postponed.versions, version) {
		a.postponed.versions = append(a.postponed.versions, version)
	}
}

func (p *postponed) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	versions := p.versions
	p.versions = nil
	return versions
}

// announcePostponed announces what was postponed once its database is there, as far as it is
// still to be announced then. During an upgrade nothing else may be announced.
func (a *App) announcePostponed(ctx context.Context) error {
	look := time.NewTicker(retryEngine)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		for _, version := range a.postponed.take() {
			d, err := a.deployment.Get(ctx)
			switch {
			case err != nil || d.Upgrade != nil:
				a.postpone(version)
				continue
			case !slices.Contains(a.reachable(d), version):
				continue
			}
			if _, err = a.ensure(ctx, d, version); a.backend.Unavailable(err) {
				a.postpone(version)
			} else if err != nil && ctx.Err() == nil {
				a.log.Warn("this upgrade is not possible", zap.String("version", version), zap.Error(err))
			}
		}
	}
}
