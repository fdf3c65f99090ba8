package databases

import (
	"context"
	"errors"
	"fmt"
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
		mine := map[string]record.Marker{db.Version: ns}
		err := identity.Check(ctx, ds, mine)
		if errors.Is(err, deployment.ErrNotFound) {
			err = identity.Unlived(ctx, ds.Name(), mine)
		}
		var mismatch *identity.MismatchError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.As(err, &mismatch):
			return &identity.MismatchError{Found: mismatch.Found} // whose it is, the caller says
		default:
			return fmt.Errorf("%w: %w", record.ErrUnavailable, err) // neither database nor etcd said no
		}
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
