package controller

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
)

// clearer is a namespace that can be rid of what its backend keeps beside the kinds.
type clearer interface {
	// Clear returns what others have in the database.
	Clear(ctx context.Context) (left []string, err error)
}

// retire drops the namespace that the record says is being retired. Nothing of an old
// namespace is ever dropped but here. The record tells of it until everything is gone, so
// that whoever leads next goes on with what is left.
//
// In the namespaces that remain nothing is dropped. Guards of managed kinds are part of
// their records, lower than those of any later direction, and replaced by its writes.
// Guards beside fixed-name kinds that keep their name are what stops a late applier of
// the direction that has ended. Lineage moves with its namespace through switches, and is
// that of the next direction as well. Tombstones are a matter of purge.
func (a *App) retire(ctx context.Context) error {
	return a.follow(ctx, func(d upgradestate.Deployment) error {
		if d.Retire == nil {
			return nil
		}
		if err := a.dropVersion(ctx, d); err != nil {
			return fmt.Errorf("retired version %s is not dropped yet: %w", d.Retire.Version, err)
		}
		return nil
	})
}

// dropVersion drops everything of the version that is being retired. Each part of it may
// have been done before.
func (a *App) dropVersion(ctx context.Context, d upgradestate.Deployment) error {
	version := d.Retire.Version
	db := a.namespaces[version]
	if db == nil {
		return fmt.Errorf("version %s is not configured here: leave it in dbs until it is retired", version)
	}
	ns, _ := d.Namespace(version)
	cleared, err := a.unowned(ctx, ns)
	if err != nil {
		return err
	}
	var left []string
	if !cleared {
		if left, err = a.dropAll(ctx, d, ns, db); err != nil {
			return err
		}
	}
	if err := a.deployment.ForgetVersion(ctx, d, version); err != nil {
		return err
	}
	if _, err := a.deployment.Apply(ctx, upgradestate.Dropped{Version: version}); err != nil {
		return err
	}
	a.log.Info("version is retired", zap.String("version", version), zap.String("location", ns.Location), zap.Strings("left in the database", left))
	return nil
}

// dropAll drops what the version has in its database, its marks last.
func (a *App) dropAll(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace, db record.Namespace) (left []string, err error) {
	for _, k := range ns.Kinds {
		if err := dropKind(ctx, db, k); err != nil {
			return nil, fmt.Errorf("drop %s of %s: %w", k.Kind, ns.Version, err)
		}
	}
	if err := a.release(ctx, d, ns.Version); err != nil {
		return nil, err
	}
	return a.clear(ctx, ns.Version)
}

// dropKind drops the one collection that the record knows by its identity, whatever name
// it bears, and nothing where that is not there any more. One without an identity is for a
// person to drop, and then gone.
func dropKind(ctx context.Context, db record.Namespace, k upgradestate.Kind) error {
	if k.ID == "" {
		info, err := db.Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, k.Physical)
		if err == nil && info.Exists {
			err = fmt.Errorf("its identity is not known: drop collection %s by hand", k.Physical)
		}
		return err
	}
	tok := tokenOf(k)
	name, err := db.Locate(ctx, k.ID)
	switch {
	case err == nil:
		tok.Name = name
		return db.Drop(ctx, tok)
	case !errors.Is(err, record.ErrNotFound):
		return err
	}
	// It is gone; what was kept beside it need not be.
	if err := db.Drop(ctx, tok); err != nil && !errors.Is(err, record.ErrFenced) {
		return err
	}
	return nil
}

// clear removes what is not a kind: scratch collections, and what the backend keeps.
func (a *App) clear(ctx context.Context, version string) (left []string, err error) {
	scratch, ok := a.scratches[version]
	if !ok {
		return nil, nil
	}
	for _, prefix := range []string{proofPrefix, planPrefix, syncer.TrialPrefix} {
		if err := scratch.Sweep(ctx, prefix); err != nil {
			return nil, fmt.Errorf("clear the database of %s: %w", version, err)
		}
	}
	if c, ok := scratch.(clearer); ok {
		return c.Clear(ctx)
	}
	return nil, nil
}
