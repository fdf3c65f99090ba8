package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/collections"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// A database that is restored from a backup loses what controllers have noted in etcd as done.
// They count beats in each database (identity.Pulse): one that is behind was restored. A version
// that is not served is then made anew, by itself. Of the one that is served a person decides.

// beatEvery is how often the leader counts where nobody else does. It decides how early a restore
// is seen, never whether.
const beatEvery = time.Second

// pulses are those of this process, by version.
type pulses struct {
	dealing chan struct{} // held by one who deals with a database that was restored

	mu sync.Mutex
	of map[string]*identity.Pulse
	at map[string]time.Time
}

func (p *pulses) get(a *App, version string, db record.Marker) *identity.Pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]*identity.Pulse{}
	}
	if p.of[version] == nil {
		p.of[version] = a.pulse(version, db)
	}
	return p.of[version]
}

func (a *App) pulse(version string, db record.Marker) *identity.Pulse {
	return &identity.Pulse{Owner: record.Owner{Deployment: a.deployment.Name(), Version: version}, DB: db, Beats: a.deployment}
}

func (p *pulses) counted(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[string]time.Time{}
	}
	p.at[version] = time.Now()
}

// since is how long ago this process has counted.
func (p *pulses) since(version string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at[version])
}

// beat counts on in a version's database. One that was restored is dealt with, and is an error
// all the same: what the caller was about to count as done is not.
func (a *App) beat(ctx context.Context, version string) error {
	if a.opts.reads || a.opts.alone {
		return nil // a rehearsal writes nothing into the real databases, and its own are thrown away
	}
	db := a.namespaces[version]
	return a.beatBy(ctx, a.pulses.get(a, version, db), db)
}

func (a *App) beatBy(ctx context.Context, pulse *identity.Pulse, db record.Namespace) error {
	version := pulse.Owner.Version
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return err
	}
	if ns, known := d.Namespace(version); !known || ns.Identity.Database == "" || upgradestate.Retired(d, version) {
		return nil // nothing is kept of it any longer, or it is not known yet to be the one that is meant
	}
	return a.deal(ctx, pulse, db, pulse.Beat(ctx))
}

// deal deals with a database that was restored, where that is what was found.
func (a *App) deal(ctx context.Context, pulse *identity.Pulse, db record.Namespace, err error) error {
	version := pulse.Owner.Version
	var restored *identity.RestoredError
	if !errors.As(err, &restored) {
		if err == nil {
			a.pulses.counted(version)
		}
		return err
	}
	// One of those that have noticed deals with it.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a.pulses.dealing <- struct{}{}:
	}
	defer func() { <-a.pulses.dealing }()
	if again := pulse.Look(ctx); !errors.As(again, &restored) {
		return errors.Join(err, again)
	}
	if dealt := a.restored(ctx, version, db, restored); dealt != nil {
		return fmt.Errorf("%w: %w", restored, dealt)
	}
	if err := pulse.Accept(ctx); err != nil {
		return err
	}
	return restored
}

// restored deals with a database that was restored. It may be repeated, until the beat is accepted.
func (a *App) restored(ctx context.Context, version string, db record.Namespace, found *identity.RestoredError) error {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return err
	}
	if err := identity.IsThere(ctx, d, version, db); err != nil {
		return err // of another one no count says anything
	}
	a.log.Error("a database was restored from a backup", zap.String("version", version), zap.Uint64("beat", found.Has), zap.Uint64("before", found.Wanted))
	if version == d.CurrentVersion {
		r := upgradestate.Restored{
			Version: version, At: time.Now().UTC().Format(time.RFC3339),
			What: fmt.Sprintf("it holds beat %d, and held %d before", found.Has, found.Wanted),
		}
		if r.Older, err = a.isOlder(ctx, version, db); err != nil {
			return err
		}
		_, err := a.deployment.Apply(ctx, upgradestate.FoundRestored{Restored: r})
		return err
	}
	return identity.Reform{
		Deployments: a.deployment,
		Make: func(ctx context.Context, d upgradestate.Deployment, version string, k upgradestate.Kind) (record.Token, error) {
			return a.remake(ctx, d, version, db, k)
		},
		Unfence: func(ctx context.Context, k upgradestate.Kind) error {
			tok := record.Token{Kind: k.Kind, Name: k.Kind, ID: k.ID, Fixed: k.Fixed}
			err := db.Unfence(ctx, record.Fence{Class: record.FenceClass(k.Fence), Token: tok, To: k.Fenced, Restore: k.Restore})
			var kept *record.KeptError
			if errors.As(err, &kept) {
				return nil // what it names stays aside
			}
			return err
		},
		Apply: func(ctx context.Context, e upgradestate.Event) error {
			_, err := a.deployment.Apply(ctx, e)
			return err
		},
	}.Do(ctx, version, db, "its database was restored from a backup")
}

// isOlder reports whether a database is older than what the record knows of its collections.
func (a *App) isOlder(ctx context.Context, version string, db record.Namespace) (bool, error) {
	err := identity.Check(ctx, a.deployment, map[string]record.Marker{version: db})
	var mismatch *identity.MismatchError
	if errors.As(err, &mismatch) {
		return true, nil
	}
	return false, err
}

// lookAgain checks whether a restored database of the served version still is older than its
// collections' names. A switch that is given up has the record take the names of before, and then
// there is nothing for 'recover' to do.
func (a *App) lookAgain(ctx context.Context, d upgradestate.Deployment, version string) error {
	found, restored := upgradestate.WasRestored(d)
	if !restored || found.Version != version {
		return nil
	}
	older, err := a.isOlder(ctx, version, a.namespaces[version])
	if err != nil || older == found.Older {
		return err
	}
	found.Older = older
	_, err = a.deployment.Apply(ctx, upgradestate.FoundRestored{Restored: found})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // another version is served by now
	}
	return err
}

// remake makes the collection of a kind that a backup of its database does not have.
func (a *App) remake(ctx context.Context, d upgradestate.Deployment, version string, db record.Namespace, k upgradestate.Kind) (record.Token, error) {
	dir, err := a.registry.Direction(d.CurrentVersion, version)
	if err != nil {
		return record.Token{}, err
	}
	specs, err := a.collections.Carried(ctx, d, dir)
	if err != nil {
		return record.Token{}, err
	}
	for _, spec := range specs {
		if spec.Name == k.Kind {
			return collections.Remake(ctx, db, spec, k)
		}
	}
	return record.Token{}, fmt.Errorf("no kind %s is configured", k.Kind)
}

// lives counts on in both databases of a direction, before what was done counts as done.
func (a *App) lives(ctx context.Context, versions ...string) error {
	var g errgroup.Group // one does not end the other
	for _, v := range versions {
		g.Go(func() error {
			return upgradestate.Blocked(upgradestate.BlockIdentity, upgradestate.BlockPlace{Version: v}, a.beat(ctx, v))
		})
	}
	return g.Wait()
}

// counts has this controller, while it leads, count on in every database that is open.
func (a *App) counts(ctx context.Context) error {
	if a.opts.reads || a.opts.alone {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, db := range a.cfg.Databases {
		g.Go(func() error { return a.countsIn(ctx, db.Version) })
	}
	return g.Wait()
}

func (a *App) countsIn(ctx context.Context, version string) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	var failing reconcile.Complaint // a database may be away for long
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		d, err := a.deployment.Get(ctx)
		ns, known := d.Namespace(version)
		if err != nil || !known || ns.Identity.Database == "" || upgradestate.Retired(d, version) || !a.databases[version].Opened() {
			continue
		}
		err = a.lookAgain(ctx, d, version)
		if err == nil && a.pulses.since(version) >= beatEvery {
			err = a.beat(ctx, version)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case elsewhere(err):
			return err
		case err == nil:
			failing.Over()
		case failing.News(err):
			a.log.Warn("the database is not known to be as it was", zap.String("version", version), zap.Error(err))
		}
	}
}

// counted are the marks of a switch, and the last look at whether a database was restored.
type counted struct {
	identity.Keeper
	app *App
}

// BeforeFlip counts on in both databases next to the marks, which takes no time of its own.
func (c counted) BeforeFlip(ctx context.Context, d upgradestate.Deployment) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Keeper.BeforeFlip(ctx, d) })
	g.Go(func() error { return c.app.lives(ctx, d.CurrentVersion, d.Upgrade.TargetVersion) })
	return g.Wait()
}

// wasRestored looks at a database that is about to be opened, in which beats were counted before.
// One that controllers with another etcd use is refused.
// What is wrong with it otherwise, or that a person has to decide, is not its business.
func (a *App) wasRestored(ctx context.Context, version string, db record.Namespace) error {
	if a.opts.reads {
		return nil
	}
	known, incarnation, err := a.deployment.LoadBeat(ctx, version)
	if err != nil || known.Count == 0 && incarnation == "" {
		return err
	}
	if d, err := a.deployment.Get(ctx); err != nil || upgradestate.Retired(d, version) {
		return nil // what there is, the others say
	}
	pulse := a.pulse(version, db) // the other ones wait until it is open
	err = a.deal(ctx, pulse, db, pulse.Look(ctx))
	var restored *identity.RestoredError
	var mismatch *identity.MismatchError
	if errors.As(err, &restored) || errors.As(err, &mismatch) {
		return nil
	}
	return err
}
