package collections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TTL indexes delete records where the current version is, and while no switch is near:
// behind a fence it would go unseen, a target would lose records that its source has, and
// the previous version must stay as it is. What they do when they may is noted in the record
// before they are stopped, so that the controller that leads next can let them go on.

// checkExpiryEvery is how often TTL indexes are checked without a change of the record, for
// ones that somebody has made or changed.
const checkExpiryEvery = 30 * time.Second

// KeepExpiry stops and starts TTL indexes until ctx ends, in the one controller that leads.
// What has to be done follows from the record and from the indexes alone.
func (m *Maintainer) KeepExpiry(ctx context.Context) error {
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(ctx context.Context, _ upgradestate.Deployment) (time.Duration, error) {
			if err := m.recheckExpiry(ctx); err != nil {
				return time.Second, err
			}
			return checkExpiryEvery, nil
		},
		Same: func(before, now upgradestate.Deployment) bool { // reports and the like
			return before.Epoch == now.Epoch && (before.Upgrade == nil) == (now.Upgrade == nil) &&
				upgradestate.ReadyToSwitch(before) == upgradestate.ReadyToSwitch(now)
		},
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated { // a database may be away for long
				m.Log.Warn("TTL indexes stay as they are for now", zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// recheckExpiry brings the TTL indexes of all versions to where they must be. Those of the
// current version are left alone while a switch may begin, for the driver stops them.
func (m *Maintainer) recheckExpiry(ctx context.Context) error {
	if err := m.expiring.take(ctx); err != nil {
		return err
	}
	defer m.expiring.give()
	d, err := m.Deployments.Get(ctx) // under the lock: no check has started since that stops them
	if err != nil {
		return err
	}
	if d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil
	}
	// One version whose database is away does not keep the others from what they must do.
	var errs []error
	for _, ns := range d.Namespaces {
		switch {
		case m.Database(ns.Version) == nil || upgradestate.Retired(d, ns.Version):
		case m.Idle(d, ns.Version):
			// Its indexes were stopped before the switch from it, and nothing asks for its database.
		case ns.Version != d.CurrentVersion:
			errs = append(errs, m.stop(ctx, d, ns.Version), m.followExpiry(ctx, d, ns))
		case !upgradestate.ReadyToSwitch(d):
			errs = append(errs, m.start(ctx, ns, d.Revision))
		}
	}
	return errors.Join(errs...)
}

// start lets the stopped indexes of the current version delete again. Then it forgets their notes:
// with a note that is older than it, an application could not stop its index for good.
func (m *Maintainer) start(ctx context.Context, ns upgradestate.Namespace, revision int64) error {
	var mu sync.Mutex
	done := map[string][]string{}
	err := together(ctx, ns, func(ctx context.Context, k upgradestate.Kind) error {
		if len(k.Expiry) == 0 {
			return nil
		}
		info, err := m.describePlace(ctx, ns.Version, k)
		if err != nil {
			return err
		}
		if err := m.changeExpiry(ctx, ns.Version, k, stopped(info.Shape, k.Expiry)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		done[k.Kind] = slices.Sorted(maps.Keys(k.Expiry))
		return nil
	})
	if len(done) == 0 {
		return err
	}
	_, forgetErr := m.Deployments.Apply(ctx, upgradestate.ForgetExpiry{Version: ns.Version, Kinds: done, Revision: revision})
	if errors.Is(forgetErr, upgradestate.ErrOutdated) {
		forgetErr = nil // the next look does it
	}
	return errors.Join(err, forgetErr)
}

// stop notes what the TTL indexes of a version do, and keeps them from deleting.
func (m *Maintainer) stop(ctx context.Context, d upgradestate.Deployment, version string) error {
	ns, _ := d.Namespace(version)
	return together(ctx, ns, func(ctx context.Context, k upgradestate.Kind) error {
		info, err := m.describePlace(ctx, version, k)
		if err != nil {
			return err
		}
		running := record.ExpiryOf(info.Shape)
		maps.DeleteFunc(running, func(_ string, seconds int64) bool { return seconds == record.NeverExpires })
		if len(running) == 0 {
			return nil
		}
		never := maps.Clone(running)
		for name := range never {
			never[name] = record.NeverExpires
		}
		if version != d.CurrentVersion {
			// For the previous version and for a target the record already has what to
			// restore: from the switch, or from the declaration.
			maps.DeleteFunc(running, func(name string, _ int64) bool { _, noted := k.Expiry[name]; return noted })
			if err := m.noteExpiry(ctx, d, version, k.Kind, running); err != nil {
				return err
			}
			return m.changeExpiry(ctx, version, k, never)
		}
		note := upgradestate.AnnounceExpiry{Version: version, Kind: k.Kind, Expiry: running, Noted: k.Expiry}
		if _, err := m.Deployments.Apply(ctx, note); err != nil {
			return fmt.Errorf("note TTL indexes of %s/%s: %w", version, k.Kind, err)
		}
		if err := m.changeExpiry(ctx, version, k, never); err != nil {
			return err
		}
		// Where this process slept before the change, the switch may be over and the note forgotten.
		if _, err := m.Deployments.Apply(ctx, note); err != nil {
			return fmt.Errorf("note TTL indexes of %s/%s again: %w", version, k.Kind, err)
		}
		return nil
	})
}

// StopExpiry keeps the TTL indexes on both sides of an upgrade from deleting, as the last
// thing before its switch.
func (m *Maintainer) StopExpiry(ctx context.Context, d upgradestate.Deployment) error {
	if err := m.expiring.take(ctx); err != nil {
		return err
	}
	defer m.expiring.give()
	if left, ok := d.Namespace(d.Upgrade.TargetVersion); ok { // the latest regular look may be long ago
		if err := m.followExpiry(ctx, d, left); err != nil {
			return err
		}
	}
	for _, version := range []string{d.Upgrade.TargetVersion, d.CurrentVersion} {
		if err := m.stop(ctx, d, version); err != nil {
			return fmt.Errorf("keep TTL indexes from deleting behind the switch: %w", err)
		}
	}
	return nil
}

// noteExpiry notes in the record after how many seconds TTL indexes of a kind are to delete.
func (m *Maintainer) noteExpiry(ctx context.Context, d upgradestate.Deployment, version, kind string, expiry map[string]int64) error {
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind(kind)
	note := map[string]int64{}
	for name, seconds := range expiry {
		had, noted := k.Expiry[name]
		// 0 seconds are an expiry too. An application may stop an index by such a number itself:
		// without a note of it the target would go on with the former one.
		if noted && had != seconds || !noted && seconds != record.NeverExpires {
			note[name] = seconds
		}
	}
	if len(note) == 0 {
		return nil
	}
	_, err := m.Deployments.Apply(ctx, upgradestate.AnnounceExpiry{Version: version, Kind: kind, Expiry: note, Noted: k.Expiry})
	if err != nil {
		return fmt.Errorf("note TTL indexes of %s/%s: %w", version, kind, err)
	}
	return nil
}

// changeExpiry changes TTL indexes of a kind where the record has it.
func (m *Maintainer) changeExpiry(ctx context.Context, version string, k upgradestate.Kind, seconds map[string]int64) error {
	if len(seconds) == 0 {
		return nil
	}
	if err := m.Database(version).Expire(ctx, syncer.TokenOf(k), seconds); err != nil {
		return err
	}
	m.Log.Info("TTL indexes are changed", zap.String("version", version), zap.String("kind", k.Kind), zap.Any("seconds", seconds))
	return nil
}

// describePlace describes a kind where the record has it.
func (m *Maintainer) describePlace(ctx context.Context, version string, k upgradestate.Kind) (record.Info, error) {
	info, err := m.Database(version).Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, k.Physical)
	if err == nil && (!info.Exists || info.Token.ID != k.ID) {
		err = fmt.Errorf("collection %s of %s/%s: %w", k.Physical, version, k.Kind, record.ErrNotFound)
	}
	return info, err
}

// stopped are, of what is noted, the seconds of the indexes that are stopped now.
func stopped(s record.Shape, noted map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, seconds := range record.ExpiryOf(s) {
		if want, ok := noted[name]; ok && seconds == record.NeverExpires && want != seconds {
			out[name] = want
		}
	}
	return out
}

// stops reports whether a TTL index of a shape deletes nothing.
func stops(s record.Shape) bool {
	for _, seconds := range record.ExpiryOf(s) {
		if seconds == record.NeverExpires {
			return true
		}
	}
	return false
}

// turn is a lock that is held over commands of a database, and so is waited for only as long
// as a context lasts. The zero value is free.
type turn struct {
	mu   sync.Mutex
	held chan struct{} // closed when it is given back; nil: it is free
}

// take waits until the turn is the caller's, who gives it back.
func (t *turn) take(ctx context.Context) error {
	for {
		t.mu.Lock()
		held := t.held
		if held == nil {
			t.held = make(chan struct{})
		}
		t.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-held:
		}
	}
}

func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.held)
	t.held = nil
}
