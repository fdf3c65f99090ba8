package databases

import (
	"context"
	"time"

	"dbcontroller/config"
	"dbcontroller/deployment"
	"dbcontroller/identity"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
)

// Belongs is the Check that a database is the one that the deployment means, and that the
// two are of one time. Where there is no such deployment, nothing of it may have lived there.
func Belongs(ds *deployment.Store) Check {
	return func(ctx context.Context, db config.DB, ns *mongostore.Namespace) error {
		return identity.Belongs(ctx, ds, deployment.ErrNotFound, ds.Name(), db.Version, ns)
	}
}

// recordWait is how long a stream waits for the coordination store, before what is known of
// the deployment has to do.
const recordWait = 2 * time.Second

// Watcher is a database for those that only watch: each stream is refused if the database is
// not the one that the deployment means. It goes on without the coordination store.
func (d *Database) Watcher(ds *deployment.Store) record.Watcher {
	known := identity.Remember(ds, recordWait, deployment.ErrNotFound)
	return identity.GuardWatcher(d, func(ctx context.Context) error {
		return identity.Same(ctx, known, map[string]record.Marker{d.db.Version: d})
	})
}
