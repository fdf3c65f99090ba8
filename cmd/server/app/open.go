package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// open opens the databases that the Deployment asks for, for as long as each takes: that of
// the active version, and the target's from the beginning of an upgrade, so that the first
// request after the flip finds it open. Others are not needed to serve. If the very first
// one refuses this server, its configuration is wrong, and that is an error; one that
// refuses later is tried again, for the server serves what it can.
func (a *App) open(ctx context.Context, deployments *deployment.Store, set *databases.Set) error {
	if err := a.unlived(ctx, deployments, set); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		opening := map[string]bool{}
		for d := range deployments.Watch(ctx) {
			first := len(opening) == 0
			for _, version := range needed(d) {
				db := set.Database(version)
				if db == nil || opening[version] {
					continue
				}
				opening[version] = true
				g.Go(func() error {
					if first && version == d.CurrentVersion {
						if err := db.Wait(ctx); err != nil && ctx.Err() == nil {
							return err
						}
					}
					return db.Keep(ctx)
				})
			}
		}
		return ctx.Err()
	})
	return g.Wait()
}

// unlived refuses to wait for a Deployment that was lost: if there is none, but a database
// in which it has lived. What cannot be reached now is not waited for.
func (a *App) unlived(ctx context.Context, deployments *deployment.Store, set *databases.Set) error {
	if _, err := deployments.Get(ctx); !errors.Is(err, deployment.ErrNotFound) {
		return nil
	}
	for _, db := range a.cfg.DBs {
		var mismatch *identity.MismatchError
		if db.Disabled {
			continue
		}
		if _, err := set.Database(db.Version).Get(ctx); errors.As(err, &mismatch) {
			return err
		}
	}
	return nil
}

// needed are the versions whose databases a server needs by a record.
func needed(d upgradestate.Deployment) []string {
	if d.Upgrade != nil {
		return []string{d.CurrentVersion, d.Upgrade.TargetVersion}
	}
	return []string{d.CurrentVersion}
}

// askLimit bounds how long /readyz may ask etcd.
const askLimit = time.Second

// ready returns nil when the server serves, and otherwise what it waits for.
func ready(runner *vrunner.Runner, deployments *deployment.Store, set *databases.Set) error {
	if err := runner.Ready(); err != nil {
		if runner.State().Active == "" {
			// A record that this binary cannot read never comes to the runner.
			ctx, cancel := context.WithTimeout(context.Background(), askLimit)
			defer cancel()
			if _, asked := deployments.Get(ctx); asked != nil && !errors.Is(asked, deployment.ErrNotFound) {
				return fmt.Errorf("%w: %w", err, asked)
			}
		}
		return err
	}
	version := runner.State().Active
	db := set.Database(version)
	if db == nil {
		return nil
	}
	if err := db.Unreadable(); err != nil {
		return fmt.Errorf("records of %s cannot be decrypted: %w", version, err)
	}
	if db.Opened() {
		return nil
	}
	if err := db.Problem(); err != nil {
		return fmt.Errorf("waiting for the database: %w", err)
	}
	return fmt.Errorf("waiting for the database of %s", version)
}
