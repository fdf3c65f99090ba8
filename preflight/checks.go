package preflight

import (
	"context"
	"errors"

	"dbcontroller/collections"
	"dbcontroller/switchover"
	"dbcontroller/upgradestate"
)

// Checks are what the switch driver asks about the databases.
type Checks struct {
	// Servers returns the servers and applications that are registered now.
	Servers     func(ctx context.Context) ([]upgradestate.ServerState, error)
	Collections *collections.Maintainer
	Prover      *Prover
}

var _ switchover.Checks = Checks{}

// BeforeSwitch checks that the target has its indexes, for an application may have made some
// on the source since they were carried over, that the names which applications know are
// free, and wants the rollback proved.
func (c Checks) BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error {
	var errs []error
	for _, err := range []error{c.lateServers(ctx, d), c.Collections.CheckIndexes(ctx, d), c.Collections.CheckNames(ctx, d, d.Upgrade.TargetVersion), c.Prover.blocks(d)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// lateServers checks that every server can follow: one may have come after the upgrade began.
func (c Checks) lateServers(ctx context.Context, d upgradestate.Deployment) error {
	servers, err := c.Servers(ctx)
	if err != nil {
		return err
	}
	if late := upgradestate.LateServers(servers, d.Upgrade.TargetVersion); late != "" {
		return errors.New(late)
	}
	return nil
}

var _ switchover.Preparer = Checks{}

// PrepareSwitch stops TTL indexes.
func (c Checks) PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error {
	return c.Collections.StopExpiry(ctx, d)
}

// BeforeSeal checks again what somebody may have changed since the switch began.
func (c Checks) BeforeSeal(ctx context.Context, d upgradestate.Deployment) error {
	if err := c.Collections.CheckNames(ctx, d, d.Upgrade.TargetVersion); err != nil {
		return err
	}
	return c.Collections.CheckStopped(ctx, d)
}
