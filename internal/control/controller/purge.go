package controller

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// purge removes the tombstones that a finished sync left in the namespace that is active now. No
// process can still apply changes of that direction, because the seal refuses it, so no record can
// be resurrected. Until the purge, clients overwrite tombstones.
func (a *App) purge(ctx context.Context) error {
	var purged uint64 // the epoch whose namespace is clean
	return recordloop.Follow(ctx, a.deployment, a.log, func(d upgradestate.Deployment) (time.Duration, error) {
		version, places := upgradestate.WritePlaces(d)
		if d.LastSwitch == nil || d.Upgrade != nil || d.Epoch == purged || len(places) == 0 {
			return 0, nil
		}
		// A purge in the wrong database would delete data of others.
		if err := a.marks.belongs(ctx, version); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := a.purgeKinds(ctx, d, version, places); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		// Keep the previous direction, because its late deletes are still watched. Also keep the
		// one before, which synced the same way as the present one: its waivers still count.
		if err := a.deployment.ForgetBefore(ctx, d.Epoch-min(d.Epoch, 2)); err != nil {
			return 0, fmt.Errorf("data of earlier directions stay for now: %w", err)
		}
		purged = d.Epoch
		return 0, nil
	})
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
