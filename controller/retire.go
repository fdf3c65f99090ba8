package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// clearer is a namespace that can be rid of what its backend keeps next to the kinds.
type clearer interface {
	// Clear returns what others have in the database.
	Clear(ctx context.Context) (left []string, err error)
}

// closer is a namespace that can have a retired version's names answer with an error.
type closer interface {
	// CloseName has clients that still use a kind's own name get an error that says said.
	CloseName(ctx context.Context, f record.Fence, said string, known []string) ([]record.Breach, error)
}

// longestWait bounds how long the leader sleeps until something is to be dropped: the clock
// of a machine may be set meanwhile.
const longestWait = time.Minute

// retryKept is how long the leader rests after it could not drop what was set aside.
const retryKept = 10 * time.Second

// retire sets aside or drops the namespace that the record says is being retired, and drops
// what was set aside once its time is over. Nothing of an old namespace is ever dropped but
// here. The record names it until everything is gone, so that the next leader goes on
// with what is left.
//
// In the namespaces that remain nothing is dropped. Guards of managed kinds are part of
// their records, lower than those of any later direction, and replaced by its writes.
// Guards next to fixed-name kinds that keep their name are what stops a late applier of
// the direction that has ended. Lineage moves with its namespace through switches, and is
// that of the next direction as well. Tombstones are a matter of purge.
func (a *App) retire(ctx context.Context) error {
	return a.follow(ctx, func(d upgradestate.Deployment) (again time.Duration, err error) {
		if r := d.Retire; r != nil {
			if err := a.retireVersion(ctx, d, *r); err != nil {
				return 0, fmt.Errorf("retired version %s is not dropped yet: %w", r.Version, err)
			}
			return 0, nil // the record that says so is seen next
		}
		for _, k := range d.Kept {
			wait := untilDropped(k, time.Now())
			if wait <= 0 {
				err := a.dropKept(ctx, d, k.Namespace)
				if err == nil {
					continue
				}
				// Nobody waits for it, and it may be for a person to correct: no need to hurry.
				wait = retryKept
				if ctx.Err() == nil {
					a.log.Warn("what is kept of a retired version is not dropped yet",
						zap.String("version", k.Namespace.Version), zap.Error(err), zap.Duration("again in", wait))
				}
			}
			if again == 0 || wait < again {
				again = wait
			}
		}
		return min(again, longestWait), nil
	})
}

// untilDropped is how long a retired namespace is still kept. A time that cannot be read is
// never over: a person has to give another one.
func untilDropped(k upgradestate.Kept, now time.Time) time.Duration {
	if k.Until == "" {
		return 0
	}
	until, err := time.Parse(time.RFC3339, k.Until)
	if err != nil {
		return longestWait
	}
	return until.Sub(now)
}

// retireVersion sets aside or drops everything of the version that is being retired. Each
// part of it may have been done before.
func (a *App) retireVersion(ctx context.Context, d upgradestate.Deployment, r upgradestate.Retire) error {
	ns, _ := d.Namespace(r.Version)
	var done upgradestate.Event = upgradestate.Dropped{Version: r.Version}
	var left []string
	var err error
	if r.Until != "" {
		done = upgradestate.SetAside{Version: r.Version}
		err = a.setAside(ctx, d, ns)
	} else {
		left, err = a.dropAll(ctx, d, ns, anyName)
	}
	if err != nil {
		return err
	}
	if err := a.deployment.ForgetVersion(ctx, d, r.Version); err != nil {
		return err
	}
	if _, err := a.deployment.Apply(ctx, done); err != nil {
		return err
	}
	a.log.Info("version is retired", zap.String("version", r.Version), zap.String("location", ns.Location),
		zap.String("kept until", r.Until), zap.Strings("left in the database", left))
	return nil
}

// dropKept drops what was set aside.
func (a *App) dropKept(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	left, err := a.dropAll(ctx, d, ns, func(k upgradestate.Kind) string { return upgradestate.RetiredName(ns.Version, k) })
	if err != nil {
		return err
	}
	if _, err := a.deployment.Apply(ctx, upgradestate.Dropped{Version: ns.Version}); err != nil {
		return err
	}
	a.log.Info("what was kept of a retired version is dropped", zap.String("version", ns.Version),
		zap.String("location", ns.Location), zap.Strings("left in the database", left))
	return nil
}

// retiredDatabase is the database of a retired version, if it still is the one that the
// record means, and whether it was cleared of everything already.
func (a *App) retiredDatabase(ctx context.Context, ns upgradestate.Namespace) (db record.Namespace, cleared bool, err error) {
	db = a.namespaces[ns.Version]
	if db == nil {
		return nil, false, fmt.Errorf("version %s is not configured here: leave it in dbs until nothing of it is kept", ns.Version)
	}
	cleared, err = a.unowned(ctx, ns)
	return db, cleared, err
}

// setAside gives a version's collections names that nobody uses. A process that slept since
// they were served, or synced to, is refused as behind any fence.
func (a *App) setAside(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	db, cleared, err := a.retiredDatabase(ctx, ns)
	if err != nil || cleared {
		return err
	}
	if err := a.closeNames(ctx, d, ns); err != nil { // where a view stands, before it is on nothing
		return err
	}
	for _, k := range ns.Kinds {
		if err := setAsideKind(ctx, db, ns.Version, k); err != nil {
			return fmt.Errorf("set %s of %s aside: %w", k.Kind, ns.Version, err)
		}
	}
	return a.closeNames(ctx, d, ns) // where the collection bore its name until now
}

// closeNames has applications that were forgotten get an error under the names of a retired
// version: they would find nothing there, and their inserts would make a collection anew that
// nobody looks at. A name that another version uses in the same database stays as it is.
func (a *App) closeNames(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	db, ok := a.scratches[ns.Version].(closer)
	if !ok {
		return nil
	}
	said := fmt.Sprintf("this is the name of version %s, which was completed: ask the Deployment API where the data is", ns.Version)
	known := knownIDs(d)
	for _, k := range ns.Kinds {
		if !k.Fixed || k.ID == "" || upgradestate.Namesake(d, ns, k) {
			continue
		}
		found, err := db.CloseName(ctx, record.Fence{
			Class: record.FenceClass(k.Fence), Token: syncer.TokenOf(k), To: upgradestate.RetiredName(ns.Version, k), Ends: k.Fenced,
		}, said, known)
		if err != nil {
			return err
		}
		if err := a.noteBreaches(ctx, d, ns.Version, k.Kind, found); err != nil {
			return err
		}
	}
	return nil
}

// setAsideKind renames the one collection that the record knows by its identity, whatever
// name it bears. One that is gone needs nothing; one without an identity is for a person to
// drop.
func setAsideKind(ctx context.Context, db record.Namespace, version string, k upgradestate.Kind) error {
	if k.ID == "" {
		return droppedByHand(ctx, db, k)
	}
	to := upgradestate.RetiredName(version, k)
	name, err := db.Locate(ctx, k.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil
	case err != nil || name == to:
		return err
	}
	tok := syncer.TokenOf(k)
	tok.Name = name
	return db.Fence(ctx, record.Fence{Token: tok, Class: record.FenceUUID, To: to})
}

// anyName has a kind dropped whatever name its collection bears.
func anyName(upgradestate.Kind) string { return "" }

// dropAll drops what a version has in its database, its marks last. A collection with
// another name than it must have (empty: any) stays.
func (a *App) dropAll(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace, named func(upgradestate.Kind) string) (left []string, err error) {
	db, cleared, err := a.retiredDatabase(ctx, ns)
	if err != nil || cleared {
		return nil, err
	}
	closeNames := func() error {
		if d.Retire == nil {
			return nil // they were closed when it was set aside; what has them since is somebody's
		}
		return a.closeNames(ctx, d, ns)
	}
	if err := closeNames(); err != nil {
		return nil, err
	}
	for _, k := range ns.Kinds {
		other, err := dropKind(ctx, db, k, named(k))
		if err != nil {
			return nil, fmt.Errorf("drop %s of %s: %w", k.Kind, ns.Version, err)
		}
		if other != "" {
			a.log.Warn("a collection of a retired version has another name than it was set aside under, so somebody uses it: it stays",
				zap.String("version", ns.Version), zap.String("kind", k.Kind), zap.String("collection", other))
		}
	}
	if err := closeNames(); err != nil {
		return nil, err
	}
	if err := a.release(ctx, d, ns.Version); err != nil {
		return nil, err
	}
	return a.clear(ctx, ns.Version)
}

// dropKind drops the one collection that the record knows by its identity, and nothing where
// that is not there any longer. One that must have a name and has another is returned by
// that, and stays. One without an identity is for a person to drop, and then gone.
func dropKind(ctx context.Context, db record.Namespace, k upgradestate.Kind, named string) (other string, err error) {
	if k.ID == "" {
		return "", droppedByHand(ctx, db, k)
	}
	tok := syncer.TokenOf(k)
	name, err := db.Locate(ctx, k.ID)
	switch {
	case err == nil && named != "" && name != named:
		return name, nil
	case err == nil:
		tok.Name = name
		return "", db.Drop(ctx, tok)
	case !errors.Is(err, record.ErrNotFound):
		return "", err
	}
	// It is gone; what was kept next to it need not be.
	if err := db.Drop(ctx, tok); err != nil && !errors.Is(err, record.ErrFenced) {
		return "", err
	}
	return "", nil
}

// droppedByHand refuses a collection without an identity while it is there: another one may
// bear its name.
func droppedByHand(ctx context.Context, db record.Namespace, k upgradestate.Kind) error {
	info, err := db.Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, k.Physical)
	if err == nil && info.Exists {
		err = fmt.Errorf("its identity is not known: drop collection %s by hand", k.Physical)
	}
	return err
}

// clear removes what is not a kind: scratch collections, and what the backend keeps.
func (a *App) clear(ctx context.Context, version string) (left []string, err error) {
	scratch, ok := a.scratches[version]
	if !ok {
		return nil, nil
	}
	if err := errors.Join(preflight.Sweep(ctx, scratch), scratch.Sweep(ctx, syncer.TrialPrefix)); err != nil {
		return nil, fmt.Errorf("clear the database of %s: %w", version, err)
	}
	if c, ok := scratch.(clearer); ok {
		return c.Clear(ctx)
	}
	return nil, nil
}
