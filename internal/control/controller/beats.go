package controller

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// A database that is restored from a backup loses work that etcd records as done. Controllers count
// beats in each database (identity.Pulse): a low count reveals a restore. If the version does not
// serve, its data are made anew automatically. If it serves, a person decides which data count.

// beatEvery is the usual interval at which the leader counts if nothing else does. A shorter interval
// detects a restore earlier. No restore goes undetected.
const beatEvery = time.Second

// beats counts in each database, and handles the databases that were restored.
type beats struct {
	*connections
	cfg         Settings
	opts        *Options
	registry    *transform.Registry
	deployment  *deployment.Store
	collections *collections.Maintainer
	pulses      pulses
	log         *zap.Logger
}

// pulses holds this process's Pulse of each version, and the time of its last beat.
type pulses struct {
	dealing chan struct{} // held while this process handles a restored database

	mu sync.Mutex
	of map[string]*identity.Pulse
	at map[string]time.Time
}

func (p *pulses) get(b *beats, version string, db record.Marker) *identity.Pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]*identity.Pulse{}
	}
	if p.of[version] == nil {
		p.of[version] = b.pulse(version, db)
	}
	return p.of[version]
}

func (b *beats) pulse(version string, db record.Marker) *identity.Pulse {
	return &identity.Pulse{Owner: record.Owner{Deployment: b.deployment.Name(), Version: version}, DB: db, Beats: b.deployment}
}

func (p *pulses) counted(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[string]time.Time{}
	}
	p.at[version] = time.Now()
}

// since returns the time since this process last counted in a version's database.
func (p *pulses) since(version string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at[version])
}

// beat increments the beat of a version's database. d is the record as the caller knows it.
// If the database was restored, beat handles that. It still returns an error, because the work that
// the caller was about to confirm is lost.
func (b *beats) beat(ctx context.Context, d upgradestate.Deployment, version string) error {
	if b.opts.reads || b.opts.alone {
		return nil // the real databases must not change; scratch ones do not survive
	}
	if ns, known := d.Namespace(version); !known || ns.Identity.Database == "" || upgradestate.Retired(d, version) {
		return nil // retired, or not yet confirmed as the recorded database
	}
	db := b.namespaces[version]
	pulse := b.pulses.get(b, version, db)
	return b.deal(ctx, pulse, db, pulse.Beat(ctx))
}

// lives increments the beats in both databases of a direction, before work counts as done.
func (b *beats) lives(ctx context.Context, versions ...string) error {
	return b.livesBy(ctx, b.deployment.Known, versions...)
}

// livesBy is lives for a caller that knows the record.
func (b *beats) livesBy(ctx context.Context, known func(context.Context) (upgradestate.Deployment, error), versions ...string) error {
	var g errgroup.Group // without a shared context: one failure must not cancel the other beat
	for _, v := range versions {
		g.Go(func() error {
			d, err := known(ctx)
			if err == nil {
				err = b.beat(ctx, d, v)
			}
			return upgradestate.Blocked(upgradestate.BlockIdentity, upgradestate.BlockPlace{Version: v}, err)
		})
	}
	return g.Wait()
}

// counts increments the beats in every open database, while this controller leads.
func (b *beats) counts(ctx context.Context) error {
	if b.opts.reads || b.opts.alone {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, db := range b.cfg.Databases {
		g.Go(func() error { return b.countsIn(ctx, db.Version) })
	}
	return g.Wait()
}

func (b *beats) countsIn(ctx context.Context, version string) error {
	every := cmp.Or(b.opts.BeatEvery, beatEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		d, err := b.deployment.Known(ctx)
		ns, known := d.Namespace(version)
		// A closed database must not be opened only to count in it.
		if err != nil || !known || ns.Identity.Database == "" || upgradestate.Retired(d, version) || !b.databases[version].Opened() {
			continue
		}
		err = b.lookAgain(ctx, d, version)
		// Work of the engines beats as well. Another beat so soon would tell nothing new.
		if err == nil && b.pulses.since(version) >= every {
			err = b.beat(ctx, d, version)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case identity.IsElsewhere(err):
			return err
		case err == nil:
			failing.Over()
		case failing.News(err):
			b.log.Warn("cannot confirm that the database is unchanged", zap.String("version", version), zap.Error(err))
		}
	}
}

// counted writes the marks of a switch, and checks a last time that no database was restored.
type counted struct {
	identity.Keeper
	beats *beats
}

// ReadAhead reads the marks. It also counts, since the count of another controller would make the one
// at the flip read first.
func (c counted) ReadAhead(ctx context.Context, d upgradestate.Deployment) error {
	var g errgroup.Group
	g.Go(func() error { return c.Keeper.ReadAhead(ctx, d) })
	known := func(context.Context) (upgradestate.Deployment, error) { return d, nil }
	g.Go(func() error { return c.beats.livesBy(ctx, known, d.CurrentVersion, d.Upgrade.TargetVersion) })
	return g.Wait()
}

// BeforeFlip writes the marks and the beats at the same time, so that the beats do not lengthen the
// switch.
func (c counted) BeforeFlip(ctx context.Context, d upgradestate.Deployment) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Keeper.BeforeFlip(ctx, d) })
	known := func(context.Context) (upgradestate.Deployment, error) { return d, nil } // a read would lengthen the switch
	g.Go(func() error { return c.beats.livesBy(ctx, known, d.CurrentVersion, d.Upgrade.TargetVersion) })
	return g.Wait()
}

// claim notes in a version's database that controllers with this etcd use it. It returns an error
// if controllers with another etcd use it.
func (b *beats) claim(ctx context.Context, version string, use func(*identity.Pulse, context.Context) error) error {
	if b.opts.reads || b.opts.alone {
		return nil
	}
	err := use(b.pulses.get(b, version, b.namespaces[version]), ctx)
	var restored *identity.RestoredError
	if errors.As(err, &restored) {
		return nil // the next beat handles it
	}
	return err
}
