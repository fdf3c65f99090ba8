package cleanup

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Tombstones removes the tombstones of finished directions.
type Tombstones struct {
	Deployments *deployment.Store
	Namespaces  map[string]record.Namespace // by version
	// Belongs returns an error if the database of a version is not the one in the record.
	Belongs func(ctx context.Context, versions ...string) error
	Log     *zap.Logger
}

// Run removes the tombstones that a finished sync left in the namespace that is active now. No
// process can still apply changes of that direction, because the seal refuses it, so no record can
// be resurrected. Until the purge, clients overwrite tombstones.
func (t Tombstones) Run(ctx context.Context) error {
	var purged uint64 // the epoch whose namespace is clean
	return recordloop.Aside(ctx, t.Deployments, t.Log, func(d upgradestate.Deployment) (time.Duration, error) {
		version, places := upgradestate.WritePlaces(d)
		if d.LastSwitch == nil || d.Upgrade != nil || d.Epoch == purged || len(places) == 0 {
			return 0, nil
		}
		// A purge in the wrong database would delete data of others.
		if err := t.Belongs(ctx, version); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := t.purgeKinds(ctx, d, version, places); err != nil {
			return 0, fmt.Errorf("tombstones of %s stay for now: %w", version, err)
		}
		if err := t.Deployments.ForgetBefore(ctx, upgradestate.OldestDirection(d)); err != nil {
			return 0, fmt.Errorf("data of earlier directions stay for now: %w", err)
		}
		purged = d.Epoch
		return 0, nil
	})
}

// purgeKinds skips kinds whose fence keeps their name. A process that paused while such a kind was
// the target holds a token that the database still accepts, so only guards and tombstones stop it.
// Their tombstones are in a side collection, where they do not affect clients.
func (t Tombstones) purgeKinds(ctx context.Context, d upgradestate.Deployment, version string, places []upgradestate.Place) error {
	db := t.Namespaces[version]
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
