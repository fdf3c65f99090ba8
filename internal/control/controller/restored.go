package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// deal handles a restored database, if err reports one. It returns other errors unchanged.
func (b *beats) deal(ctx context.Context, pulse *identity.Pulse, db record.Namespace, err error) error {
	version := pulse.Owner.Version
	var restored *identity.RestoredError
	if !errors.As(err, &restored) {
		if err == nil {
			b.pulses.counted(version)
		}
		return err
	}
	// Several goroutines notice the restore. One handles it, the others wait.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case b.pulses.dealing <- struct{}{}:
	}
	defer func() { <-b.pulses.dealing }()
	// Another one may have handled it while this one waited.
	if again := pulse.Look(ctx); !errors.As(again, &restored) {
		return errors.Join(err, again)
	}
	// The answer ends the engine that found the restore, and ctx with it. Accept must still follow:
	// once a rename has confirmed the answer, the next beat would begin another copy.
	ctx, done := closing.Outlive(ctx)
	defer done()
	if dealt := b.restored(ctx, version, db, restored); dealt != nil {
		return fmt.Errorf("%w: %w", restored, dealt)
	}
	// Last, so that a process that stops before this line handles the restore again.
	if err := pulse.Accept(ctx); err != nil {
		return err
	}
	return restored
}

// restored handles a restored database. It may run again until the beat is accepted, also by another
// controller. The record then has the answer to the finding, and nothing is copied once more.
func (b *beats) restored(ctx context.Context, version string, db record.Namespace, found *identity.RestoredError) error {
	d, err := b.deployment.Get(ctx)
	if err != nil {
		return err
	}
	if err := identity.IsThere(ctx, d, version, db); err != nil {
		return err // the beat of another database proves nothing
	}
	b.log.Error("a database was restored from a backup", zap.String("version", version), zap.Uint64("beat", found.Has), zap.Uint64("before", found.Wanted))
	// Data of the current version cannot be made anew: a person must decide.
	if version == d.CurrentVersion {
		r := upgradestate.Restored{
			Version: version, At: time.Now().UTC().Format(time.RFC3339),
			What: fmt.Sprintf("it holds beat %d, but held %d before", found.Has, found.Wanted),
		}
		// If the names do not fit either, the person needs 'recover' as well.
		if r.Older, err = b.isOlder(ctx, version, db); err != nil {
			return err
		}
		_, err := b.deployment.Apply(ctx, upgradestate.FoundRestored{Restored: r, Epoch: d.Epoch, Finding: found.Finding})
		return err
	}
	// The version does not serve, so all of its data can be copied again.
	return identity.Reform{
		Deployments: b.deployment,
		Make: func(ctx context.Context, d upgradestate.Deployment, version string, k upgradestate.Kind) (record.Token, error) {
			return b.remake(ctx, d, version, db, k)
		},
		Unfence: func(ctx context.Context, k upgradestate.Kind) error {
			tok := record.Token{Kind: k.Kind, Name: k.Kind, ID: k.ID, Fixed: k.Fixed}
			err := db.Unfence(ctx, record.Fence{Class: record.FenceClass(k.Fence), Token: tok, To: k.Fenced, Restore: k.Restore})
			var kept *record.KeptError
			if errors.As(err, &kept) {
				return nil // the collection that blocks it stays under another name
			}
			return err
		},
		Apply: func(ctx context.Context, e upgradestate.Event) error {
			_, err := b.deployment.Apply(ctx, e)
			return err
		},
		Finding: found.Finding,
	}.Do(ctx, version, db, "its database was restored from a backup")
}

// isOlder reports whether a database is older than the record's knowledge of its collections.
func (b *beats) isOlder(ctx context.Context, version string, db record.Namespace) (bool, error) {
	err := identity.Check(ctx, b.deployment, map[string]record.Marker{version: db})
	var mismatch *identity.MismatchError
	if errors.As(err, &mismatch) {
		return true, nil
	}
	return false, err
}

// lookAgain updates whether a restored database of the current version is older than the record. An
// aborted switch may give collections their earlier names back. Then the database fits again and
// 'recover' has nothing to do.
func (b *beats) lookAgain(ctx context.Context, d upgradestate.Deployment, version string) error {
	found, restored := upgradestate.WasRestored(d)
	if !restored || found.Version != version {
		return nil
	}
	older, err := b.isOlder(ctx, version, b.namespaces[version])
	if err != nil || older == found.Older {
		return err
	}
	found.Older = older
	_, err = b.deployment.Apply(ctx, upgradestate.FoundRestored{Restored: found, Epoch: d.Epoch})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // another version serves now
	}
	return err
}

// remake creates the collection of a kind that the backup of its database lacks.
func (b *beats) remake(ctx context.Context, d upgradestate.Deployment, version string, db record.Namespace, k upgradestate.Kind) (record.Token, error) {
	dir, err := b.registry.Direction(d.CurrentVersion, version)
	if err != nil {
		return record.Token{}, err
	}
	specs, err := b.collections.Carried(ctx, d, dir)
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

// wasRestored checks a database with earlier beats before it opens. It refuses a database that
// controllers with another etcd use. It ignores a restore that needs a person, and other
// mismatches, because other checks report them.
func (b *beats) wasRestored(ctx context.Context, version string, db record.Namespace) error {
	if b.opts.reads {
		return nil
	}
	known, incarnation, err := b.deployment.LoadBeat(ctx, version)
	if err != nil || known.Count == 0 && incarnation == "" {
		return err
	}
	if d, err := b.deployment.Get(ctx); err != nil || upgradestate.Retired(d, version) {
		return nil // other checks report the error
	}
	pulse := b.pulse(version, db) // those in pulses need the database to be open
	err = b.deal(ctx, pulse, db, pulse.Look(ctx))
	var restored *identity.RestoredError
	var mismatch *identity.MismatchError
	// deal has handled or recorded it. The database must open so that work can go on.
	if errors.As(err, &restored) || errors.As(err, &mismatch) {
		return nil
	}
	return err
}
