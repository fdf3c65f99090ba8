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

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TTL indexes delete records only in the current version, and only while no switch is near. Behind
// a fence, a delete would go unnoticed. A target would lose records that its source has. The
// previous version must keep its data. Before a TTL index is stopped, its expiry is noted in the
// record, so that the next leader can start it again.

// checkExpiryEvery is the interval of checks without a change of the record. They find TTL indexes
// that an application has created or changed.
const checkExpiryEvery = 30 * time.Second

// KeepExpiry stops and starts TTL indexes until ctx ends, and allows what PinChunks stopped. Only the
// leader runs it. It decides from
// the record and the indexes alone, so any successor can continue.
func (m *Maintainer) KeepExpiry(ctx context.Context) error {
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(ctx context.Context, _ upgradestate.Deployment) (time.Duration, error) {
			if err := m.recheckExpiry(ctx); err != nil {
				return time.Second, err
			}
			return checkExpiryEvery, nil
		},
		Same: func(before, now upgradestate.Deployment) bool { // skip reports and other changes
			return before.Epoch == now.Epoch && (before.Upgrade == nil) == (now.Upgrade == nil) &&
				upgradestate.ReadyToSwitch(before) == upgradestate.ReadyToSwitch(now)
		},
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated { // a database may be unavailable for long
				m.Log.Warn("cannot change TTL indexes, or allow moves of chunks, now", zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// recheckExpiry stops or starts the TTL indexes of all versions as required. While a switch may
// begin, it does not start those of the current version, because the driver stops them. The same
// holds for moves of chunks.
func (m *Maintainer) recheckExpiry(ctx context.Context) error {
	if err := m.expiring.take(ctx); err != nil {
		return err
	}
	defer m.expiring.give()
	d, err := m.Deployments.Get(ctx) // read under the lock: StopExpiry cannot run in between
	if err != nil {
		return err
	}
	if d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil
	}
	// An unavailable database must not prevent the work in the others.
	var errs []error
	for _, ns := range d.Namespaces {
		switch {
		case m.Database(ns.Version) == nil || upgradestate.Retired(d, ns.Version):
		case m.Idle(d, ns.Version):
			// Its indexes were stopped before the switch, and its database may be unavailable.
		case ns.Version != d.CurrentVersion:
			errs = append(errs, m.stop(ctx, d, ns.Version), m.followExpiry(ctx, d, ns))
		case !upgradestate.ReadyToSwitch(d):
			errs = append(errs, m.start(ctx, ns, d.Revision))
		}
	}
	if !upgradestate.ReadyToSwitch(d) {
		errs = append(errs, m.unpinChunks(ctx, d))
	}
	return errors.Join(errs...)
}

// start restarts the stopped TTL indexes of the current version and then removes their notes. With
// an outdated note, an application could never stop its index.
func (m *Maintainer) start(ctx context.Context, ns upgradestate.Namespace, revision int64) error {
	var mu sync.Mutex
	done := map[string][]string{}
	err := together(ctx, ns, kindsAtOnce, func(ctx context.Context, k upgradestate.Kind) error {
		if len(k.Expiry) == 0 {
			return nil
		}
		info, err := m.describePlace(ctx, ns.Version, k)
		if err != nil {
			return err
		}
		if err := m.startKind(ctx, ns.Version, k, info.Shape); err != nil {
			return err
		}
		// together runs the kinds at the same time.
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
		forgetErr = nil // the next check does it
	}
	return errors.Join(err, forgetErr)
}

// startKind restarts the stopped TTL indexes of a kind. An application may change one after its shape
// was read. Its seconds win, so startKind puts them back.
func (m *Maintainer) startKind(ctx context.Context, version string, k upgradestate.Kind, shape record.Shape) error {
	next := stopped(shape, k.Expiry)
	read := never(next)
	var errs []error
	for len(next) > 0 {
		between, err := m.changeExpiry(ctx, version, k, read, next)
		errs = append(errs, err)
		read, next = next, between
	}
	return errors.Join(errs...)
}

// stop notes the expiry of a version's running TTL indexes and then stops them.
func (m *Maintainer) stop(ctx context.Context, d upgradestate.Deployment, version string) error {
	ns, _ := d.Namespace(version)
	return together(ctx, ns, kindsAtOnce, func(ctx context.Context, k upgradestate.Kind) error {
		info, err := m.describePlace(ctx, version, k)
		if err != nil {
			return err
		}
		running := record.ExpiryOf(info.Shape)
		maps.DeleteFunc(running, func(_ string, seconds int64) bool { return seconds == record.NeverExpires })
		if len(running) == 0 {
			return nil
		}
		// Notes first, in every branch below: a stopped index without a note stays stopped for
		// good.
		still := never(running)
		if version != d.CurrentVersion {
			// For the previous version and for a target, the record already has the expiry: from
			// the switch, or from the declaration. Do not overwrite it.
			maps.DeleteFunc(running, func(name string, _ int64) bool { _, noted := k.Expiry[name]; return noted })
			if err := m.noteExpiry(ctx, d, version, k.Kind, running); err != nil {
				return err
			}
			_, err := m.changeExpiry(ctx, version, k, nil, still)
			return err
		}
		note := upgradestate.AnnounceExpiry{Version: version, Kind: k.Kind, Expiry: running, Noted: k.Expiry}
		if _, err := m.Deployments.Apply(ctx, note); err != nil {
			return fmt.Errorf("record TTL indexes of %s/%s: %w", version, k.Kind, err)
		}
		between, changed := m.changeExpiry(ctx, version, k, running, still)
		// If this process paused before the change, the switch may be over and the note removed.
		// Write it again. An application may also have changed an index since its shape was read.
		// Its seconds are the ones to restart with.
		note.Noted = overlaid(k.Expiry, running)
		note.Expiry = overlaid(running, between)
		if changed != nil && len(between) == 0 {
			return changed
		}
		if _, err := m.Deployments.Apply(ctx, note); err != nil {
			return fmt.Errorf("record TTL indexes of %s/%s again: %w", version, k.Kind, err)
		}
		return changed
	})
}

// StopExpiry stops the TTL indexes on both sides of an upgrade. It is the last step before the
// switch.
func (m *Maintainer) StopExpiry(ctx context.Context, d upgradestate.Deployment) error {
	if err := m.expiring.take(ctx); err != nil {
		return err
	}
	defer m.expiring.give()
	if left, ok := d.Namespace(d.Upgrade.TargetVersion); ok { // the last regular check may be old
		if err := m.followExpiry(ctx, d, left); err != nil {
			return err
		}
	}
	// The target first: the current version stops as late as possible.
	for _, version := range []string{d.Upgrade.TargetVersion, d.CurrentVersion} {
		if err := m.stop(ctx, d, version); err != nil {
			return fmt.Errorf("keep TTL indexes from deleting behind the switch: %w", err)
		}
	}
	return nil
}

// noteExpiry notes in the record the seconds after which a kind's TTL indexes shall delete.
func (m *Maintainer) noteExpiry(ctx context.Context, d upgradestate.Deployment, version, kind string, expiry map[string]int64) error {
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind(kind)
	note := map[string]int64{}
	for name, seconds := range expiry {
		had, noted := k.Expiry[name]
		// 0 seconds is an expiry, too. An application may stop an index with such a number. Without
		// a note, the target would continue with the earlier number.
		if noted && had != seconds || !noted && seconds != record.NeverExpires {
			note[name] = seconds
		}
	}
	if len(note) == 0 {
		return nil
	}
	_, err := m.Deployments.Apply(ctx, upgradestate.AnnounceExpiry{Version: version, Kind: kind, Expiry: note, Noted: k.Expiry})
	if err != nil {
		return fmt.Errorf("record TTL indexes of %s/%s: %w", version, kind, err)
	}
	return nil
}

// changeExpiry changes TTL indexes of a kind at the place in the record. between holds the indexes
// that had other seconds than in read right before the change, with these seconds, even if err is not
// nil.
func (m *Maintainer) changeExpiry(ctx context.Context, version string, k upgradestate.Kind, read, seconds map[string]int64) (between map[string]int64, err error) {
	if len(seconds) == 0 {
		return nil, nil
	}
	between, err = m.Database(version).Expire(ctx, syncer.TokenOf(k), seconds)
	maps.DeleteFunc(between, func(name string, had int64) bool { return had == read[name] || had == seconds[name] })
	if err != nil {
		return between, err
	}
	m.Log.Info("changed TTL indexes", zap.String("version", version), zap.String("kind", k.Kind), zap.Any("seconds", seconds))
	return between, nil
}

// never returns the given indexes with the seconds that stop them.
func never(indexes map[string]int64) map[string]int64 {
	out := make(map[string]int64, len(indexes))
	for name := range indexes {
		out[name] = record.NeverExpires
	}
	return out
}

// overlaid returns a copy of below with the entries of above.
func overlaid(below, above map[string]int64) map[string]int64 {
	out := maps.Clone(below)
	if out == nil {
		out = map[string]int64{}
	}
	maps.Copy(out, above)
	return out
}

// describePlace describes a kind at the place in the record. If another collection is there, the
// error is record.ErrNotFound.
func (m *Maintainer) describePlace(ctx context.Context, version string, k upgradestate.Kind) (record.Info, error) {
	info, err := m.Database(version).Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, k.Physical)
	if err == nil && (!info.Exists || info.Token.ID != k.ID) {
		err = fmt.Errorf("collection %s of %s/%s: %w", k.Physical, version, k.Kind, record.ErrNotFound)
	}
	return info, err
}

// stopped returns the noted seconds of the indexes that are stopped now.
func stopped(s record.Shape, noted map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, seconds := range record.ExpiryOf(s) {
		if want, ok := noted[name]; ok && seconds == record.NeverExpires && want != seconds {
			out[name] = want
		}
	}
	return out
}

// stops reports whether a shape has a TTL index that deletes nothing.
func stops(s record.Shape) bool {
	for _, seconds := range record.ExpiryOf(s) {
		if seconds == record.NeverExpires {
			return true
		}
	}
	return false
}

// turn is a lock whose holder calls a database, so a waiter gives up when its context ends. The
// zero value is unlocked.
type turn struct {
	mu   sync.Mutex
	held chan struct{} // closed by give; nil: unlocked
}

// take locks the turn. The caller must call give, unless take returns an error.
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
