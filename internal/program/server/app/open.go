package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// open opens the databases that the Deployment requires, and waits for each as long as necessary.
// These are the active version's and, from the beginning of an upgrade, the target's: the first
// request after the flip must find it open. If the first database refuses this server, the
// configuration is wrong, and open returns the error. A later refusal is retried, because the
// server can still serve the active version.
func (a *App) open(ctx context.Context, deployments *deployment.Store, set *databases.Set) error {
	if err := a.unlived(ctx, deployments, set); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// Start each version once. Keep then retries until its database is open.
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
					// Only the first refusal ends the server: at that time nothing is served yet.
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

// unlived returns an error if the Deployment is missing but a database was in use already. The
// Deployment was then lost, and waiting for it would not help. Databases that cannot be reached are
// skipped.
func (a *App) unlived(ctx context.Context, deployments *deployment.Store, set *databases.Set) error {
	if _, err := deployments.Get(ctx); !errors.Is(err, deployment.ErrNotFound) {
		return nil
	}
	for _, db := range a.cfg.DBs {
		var mismatch *identity.MismatchError
		// The operator may have removed a disabled database on purpose.
		if db.Disabled {
			continue
		}
		if _, err := set.Database(db.Version).Get(ctx); errors.As(err, &mismatch) {
			return err
		}
	}
	return nil
}

// needed returns the versions whose databases a server needs.
func needed(d upgradestate.Deployment) []string {
	if d.Upgrade != nil {
		return []string{d.CurrentVersion, d.Upgrade.TargetVersion}
	}
	return []string{d.CurrentVersion}
}

// askLimit limits the question of /readyz to etcd.
const askLimit = time.Second

// ready returns nil if the server can serve, and otherwise the reason.
func ready(runner *vrunner.Runner, deployments *deployment.Store, set *databases.Set) error {
	if err := runner.Ready(); err != nil {
		if runner.State().Active == "" {
			// The runner never receives a record that this binary cannot decode. Ask for it here,
			// or the reason would stay hidden.
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
	// Ready requires a database of the active version, so only a change in between leads here.
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
