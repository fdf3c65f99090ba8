package controller

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// purge removes the tombstones that a finished sync left in the namespace that is active now. No
// process can still apply changes of that direction, because the seal refuses it, so no record can
// be resurrected. Until the purge, clients overwrite tombstones.
func (a *App) purge(ctx context.Context) error {
	var purged uint64 // the epoch whose namespace is clean
	return a.follow(ctx, func(d upgradestate.Deployment) (time.Duration, error) {
		version, places := upgradestate.WritePlaces(d)
		if d.LastSwitch == nil || d.Upgrade != nil || d.Epoch == purged || len(places) == 0 {
			return 0, nil
		}
		// A purge in the wrong database would delete data of others.
		if err := a.belongs(ctx, version); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := a.purgeKinds(ctx, d, version, places); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := a.deployment.ForgetBefore(ctx, upgradestate.OldestDirection(d)); err != nil {
			return 0, fmt.Errorf("data of earlier directions stay for now: %w", err)
		}
		purged = d.Epoch
		return 0, nil
	})
}

// follow calls do with each version of the record, until ctx ends. It calls do again with the
// latest record after a failure, or after the time that do returns.
func (a *App) follow(ctx context.Context, do func(upgradestate.Deployment) (again time.Duration, err error)) error {
	once := retryEngine // one repetition, for databases that open after the start
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(_ context.Context, d upgradestate.Deployment) (time.Duration, error) {
			again, err := do(d)
			if again == 0 {
				again, once = once, 0
			}
			return again, err
		},
		Retry: retryEngine,
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				a.log.Warn("work of the leader failed and will be retried", zap.Error(err), zap.Duration("in", retryEngine))
			}
		},
	}
	return loop.Run(ctx, a.deployment.Watch(ctx))
}

// purgeKinds skips kinds whose fence keeps their name. A process that paused while such a kind was
// the target holds a token that the database still accepts, so only guards and tombstones stop it.
// Their tombstones are in a side collection, where they do not affect clients.
func (a *App) purgeKinds(ctx context.Context, d upgradestate.Deployment, version string, places []upgradestate.Place) error {
	db := a.namespaces[version]
	if db == nil {
		return fmt.Errorf("version %s is not configured here", version)
	}
	ns, _ := d.Namespace(version)
	for _, p := range places {
		k, _ := ns.Kind(p.Kind)
		if c := record.FenceClass(k.Fence); c == record.FenceValidator || c == record.FenceWriteBlock {
			continue
		}
		if err := db.Purge(ctx, syncer.TokenAt(p)); err != nil {
			return err
		}
	}
	return nil
}
