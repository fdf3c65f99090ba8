package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// provisioning creates the collections of versions, and announces the upgrades that become possible.
type provisioning struct {
	*connections
	cfg         Settings
	backend     Backend
	registry    *transform.Registry
	deployment  *deployment.Store
	collections *collections.Maintainer
	marks       *marks
	beats       *beats
	keys        *keys.Keeper
	postponed   postponed // upgrades to announce once their databases are open
	announced   uint64    // epoch whose upgrades are announced; set by App.prepare, then by the sync
	log         *zap.Logger
}

// Announce announces every possible upgrade with the collections of both sides, and which one is
// copied in advance. It does so once for each direction: an announcement that another process
// withdraws, because of its configuration, stays withdrawn. It returns an error if the upgrade that
// this process will sync is not possible. It skips other impossible upgrades, or postpones them if
// only their database is unavailable.
func (p *provisioning) Announce(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	targets := p.cfg.reachable(d)
	wanted, ok := p.cfg.wants(d)
	if ok { // first, because this one has work to do
		targets = append([]string{wanted}, slices.DeleteFunc(targets, func(v string) bool { return v == wanted })...)
	}
	if d.Upgrade != nil {
		targets = targets[:min(1, len(targets))] // a running upgrade refuses others
	}
	for _, to := range targets {
		next, err := p.ensure(ctx, d, to)
		switch {
		case err == nil:
			d = next
		case to == wanted || ctx.Err() != nil:
			// Another controller may have flipped meanwhile. Then another version is wanted.
			if now, getErr := p.deployment.Get(ctx); getErr == nil && now.Epoch != d.Epoch {
				return p.Announce(ctx, now)
			}
			return d, err
		default:
			if p.backend.Unavailable(err) {
				p.postpone(to)
			}
			p.log.Warn("this upgrade is not possible", zap.String("version", to), zap.Error(err))
		}
	}
	if d.Upgrade == nil {
		p.announced = d.Epoch
	}
	return d, nil
}

// MustAnnounce reports whether the upgrades of the present direction are not announced yet.
func (p *provisioning) MustAnnounce(d upgradestate.Deployment) bool {
	return d.Name != "" && d.Upgrade == nil && p.announced < d.Epoch
}

// ensure creates missing collections on both sides of a direction, and announces the upgrade. A
// second call changes nothing.
func (p *provisioning) ensure(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, error) {
	d, dir, err := p.EnsureCollections(ctx, d, to)
	if err != nil {
		return d, err
	}
	available := upgradestate.Available{TargetVersion: to, TransformHash: dir.Hash(), Precopied: to == p.cfg.precopied(d)}
	if slices.Contains(d.Available, available) {
		return d, nil
	}
	return p.deployment.Apply(ctx, upgradestate.AnnounceAvailable{Available: available})
}

// EnsureCollections creates missing collections on both sides of a direction.
func (p *provisioning) EnsureCollections(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, transform.Direction, error) {
	dir, err := p.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return d, nil, err
	}
	if d, err = p.provision(ctx, d, d.CurrentVersion, dir.SourceKinds()); err != nil {
		return d, nil, err
	}
	targetKinds, err := p.collections.Carried(ctx, d, dir)
	if err != nil {
		return d, nil, err
	}
	d, err = p.provision(ctx, d, to, targetKinds)
	return d, dir, err
}

// provision creates the missing ones of a version's collections, and announces all of them.
func (p *provisioning) provision(ctx context.Context, d upgradestate.Deployment, version string, kinds []record.KindSpec) (upgradestate.Deployment, error) {
	db, _ := p.cfg.Database(version)
	d, err := p.marks.adopt(ctx, d, version)
	if err != nil {
		return d, err
	}
	known, _ := d.Namespace(version)
	// A kind that the record has is never provisioned again, even if its collection is gone.
	missing := slices.DeleteFunc(slices.Clone(kinds), func(k record.KindSpec) bool { _, there := known.Kind(k.Name); return there })
	if len(missing) == 0 {
		return d, p.marks.belongs(ctx, version)
	}
	id, err := p.marks.enter(ctx, d, version, missing)
	if err != nil {
		return d, err
	}
	// The last check before anything is created: controllers with another etcd may use the
	// database.
	if err := p.beats.claim(ctx, version, (*identity.Pulse).Look); err != nil {
		return d, err
	}
	ns, err := syncer.Provision(ctx, p.namespaces[version], d, version, db.Location, kinds, func(kind string) record.FenceClass { return p.cfg.Fences[kind] })
	if err != nil {
		return d, err
	}
	// Before the collections are announced, because clients then write to them.
	err = p.keys.Begin(ctx, version, missing, func(first *sealed.State) error {
		if len(known.Kinds) > 0 {
			first = nil
		}
		return identity.Take(ctx, d, version, p.namespaces[version], ns.Kinds, first)
	})
	if err != nil {
		return d, err
	}
	// Two etcds may have started at the same moment. The beat lets only the first one continue.
	if err := p.beats.claim(ctx, version, (*identity.Pulse).Beat); err != nil {
		return d, err
	}
	ns.Identity, ns.Hosts = id, db.Hosts
	return p.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
}

// withdraw withdraws announced upgrades to versions that are now disabled. Only the leader does so.
// Otherwise controllers with different configurations would announce and withdraw in turn.
func (p *provisioning) withdraw(ctx context.Context) error {
	for d := range p.deployment.Watch(ctx) {
		for _, available := range d.Available {
			if db, configured := p.cfg.Database(available.TargetVersion); !configured || !db.Disabled {
				continue
			}
			_, err := p.deployment.Apply(ctx, upgradestate.WithdrawAvailable{TargetVersion: available.TargetVersion})
			if err != nil && ctx.Err() == nil {
				p.log.Warn("an upgrade to a disabled version is still announced", zap.String("version", available.TargetVersion), zap.Error(err))
			}
		}
	}
	return ctx.Err()
}

// postponed holds upgrades that wait for their databases before they are announced.
type postponed struct {
	mu       sync.Mutex
	versions []string
}

func (p *provisioning) postpone(version string) {
	p.postponed.mu.Lock()
	defer p.postponed.mu.Unlock()
	if !slices.Contains(p.postponed.versions, version) {
		p.postponed.versions = append(p.postponed.versions, version)
	}
}

func (p *postponed) has(version string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.versions, version)
}

func (p *postponed) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	versions := p.versions
	p.versions = nil
	return versions
}

// announcePostponed announces postponed upgrades once their databases are available, if they are
// still possible. A running upgrade refuses other announcements, so they wait until it ends.
func (p *provisioning) announcePostponed(ctx context.Context) error {
	look := time.NewTicker(retryEngine)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		for _, version := range p.postponed.take() {
			d, err := p.deployment.Get(ctx)
			switch {
			// Keep it for the next round.
			case err != nil || d.Upgrade != nil:
				p.postpone(version)
				continue
			case !slices.Contains(p.cfg.reachable(d), version):
				continue
			}
			if _, err = p.ensure(ctx, d, version); p.backend.Unavailable(err) {
				p.postpone(version)
			} else if err != nil && ctx.Err() == nil {
				p.log.Warn("this upgrade is not possible", zap.String("version", version), zap.Error(err))
			}
		}
	}
}
