package controller

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller/record"
	"dbcontroller/switchover"
	"dbcontroller/upgradestate"
)

// checks are what the switch driver asks about the databases.
type checks struct {
	app    *App
	prover *prover
}

var _ switchover.Checks = checks{}

// BeforeSwitch looks that the target has its indexes, for an application may have made some
// on the source since they were carried over, that the names which applications know are
// free, and wants the rollback proved.
func (c checks) BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error {
	var errs []error
	for _, err := range []error{c.lateServers(ctx, d), c.app.checkIndexes(ctx, d), c.checkNames(ctx, d), c.prover.against(d)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// lateServers looks that every server can follow: one may have come after the upgrade began.
func (c checks) lateServers(ctx context.Context, d upgradestate.Deployment) error {
	servers, err := c.app.deployment.Servers(ctx)
	if err != nil {
		return err
	}
	if late := upgradestate.LateServers(servers, d.Upgrade.TargetVersion); late != "" {
		return errors.New(late)
	}
	return nil
}

var _ switchover.Preparer = checks{}

// PrepareSwitch stops TTL indexes.
func (c checks) PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error {
	return c.app.stopBoth(ctx, d)
}

// BeforeSeal looks again at what somebody may have changed since the switch began.
func (c checks) BeforeSeal(ctx context.Context, d upgradestate.Deployment) error {
	if err := c.checkNames(ctx, d); err != nil {
		return err
	}
	return c.app.checkStopped(ctx, d)
}

// checkNames looks that no collection bears a name that the target takes at the flip.
func (c checks) checkNames(ctx context.Context, d upgradestate.Deployment) error {
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	for _, k := range target.Kinds {
		if !k.Fixed || !k.Hidden {
			continue
		}
		own, err := c.app.namespaces[target.Version].Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: true}, k.Kind)
		var refused *record.UnsupportedError
		if errors.As(err, &refused) {
			if refused.Fence && k.Fence == string(record.FenceView) && k.Fenced != "" {
				continue // the fence of an earlier switch left it there, and the flip takes it away
			}
			return fmt.Errorf("the name %s in the database of %s is taken, and the switch needs it: %w: rename or drop that one", k.Kind, target.Version, err)
		}
		if err != nil {
			return fmt.Errorf("the name %s in the database of %s: %w", k.Kind, target.Version, err)
		}
		if own.Exists {
			return fmt.Errorf("a collection %s is in the database of %s already, and the switch needs its name: rename or remove it (an application of the new version may have made it too early)", k.Kind, target.Version)
		}
	}
	return nil
}
