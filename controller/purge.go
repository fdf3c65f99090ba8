package controller

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// purge removes the tombstones that a sync has left in the namespace that is active now.
// Its direction has ended: the seal keeps everyone who might still apply for it away, so
// that nothing can be resurrected. Until then clients write over tombstones.
func (a *App) purge(ctx context.Context) error {
	var purged uint64 // the epoch whose namespace is clean
	return a.follow(ctx, func(d upgradestate.Deployment) (time.Duration, error) {
		version, places := upgradestate.WritePlaces(d)
		if d.LastSwitch == nil || d.Upgrade != nil || d.Epoch == purged || len(places) == 0 {
			return 0, nil
		}
		if err := a.belongs(ctx, version); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := a.purgeKinds(ctx, d, version, places); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		// The direction before this one is still watched for late deletes, and of the one
		// before that, which is this one's way, is asked what was waived.
		if err := a.deployment.ForgetBefore(ctx, d.Epoch-min(d.Epoch, 2)); err != nil {
			return 0, fmt.Errorf("what is kept of earlier directions stays for now: %w", err)
		}
		purged = d.Epoch
		return 0, nil
	})
}

// follow does something with each record that is seen, and again with the latest one a
// while after it has failed, or after the time that it returns, until ctx ends.
func (a *App) follow(ctx context.Context, do func(upgradestate.Deployment) (again time.Duration, err error)) error {
	once := retryEngine // after the start, for databases that open meanwhile
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
				a.log.Warn("work of the leader is tried again", zap.Error(err), zap.Duration("in", retryEngine))
			}
		},
	}
	return loop.Run(ctx, a.deployment.Watch(ctx))
}

// purgeKinds leaves alone kinds whose fence lets them keep their name: what slept since
// they were the target still has a token that the database takes, and is stopped by the
// guards alone. Their tombstones are next to them, where they hinder no client.
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
