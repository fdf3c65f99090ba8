package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dbcontroller/record"
	"dbcontroller/switchover"
	"dbcontroller/upgradestate"
)

// checks are what the switch driver asks about the databases.
type checks struct{ app *App }

var _ switchover.Checks = checks{}

// BeforeSwitch completes the target's collections once more, for an application may have
// made indexes on the source since they were carried over, and looks that the names which
// applications know are free. On the way back the collections are the application's own,
// as it made them.
func (c checks) BeforeSwitch(ctx context.Context, d upgradestate.Deployment) error {
	a := c.app
	if versions := a.cfg.Versions(); slices.Index(versions, d.Upgrade.TargetVersion) < slices.Index(versions, d.CurrentVersion) {
		return c.BeforeSeal(ctx, d)
	}
	dir, err := a.registry.Direction(d.CurrentVersion, d.Upgrade.TargetVersion)
	if err != nil {
		return err
	}
	kinds, err := a.carryShapes(ctx, d, dir)
	if err != nil {
		return err
	}
	places := upgradestate.EnginePlaces(d, d.Upgrade.TargetVersion)
	for _, k := range kinds {
		if len(places[k.Name]) == 0 {
			continue
		}
		if _, err := a.namespaces[d.Upgrade.TargetVersion].Provision(ctx, k, places[k.Name][0].Name); err != nil {
			return fmt.Errorf("complete %s/%s: %w", d.Upgrade.TargetVersion, k.Name, err)
		}
	}
	return c.BeforeSeal(ctx, d)
}

// BeforeSeal looks that no collection bears a name that the target takes at the flip.
func (c checks) BeforeSeal(ctx context.Context, d upgradestate.Deployment) error {
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	for _, k := range target.Kinds {
		if !k.Fixed || !k.Hidden {
			continue
		}
		own, err := c.app.namespaces[target.Version].Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: true}, k.Kind)
		var refused *record.UnsupportedError
		if errors.As(err, &refused) && k.Fence == string(record.FenceView) && k.Fenced != "" {
			continue // the view that the fence of an earlier switch left there, and the flip takes away
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
