// Package cleanup removes the data that a deployment no longer needs: those of retired versions, and
// the tombstones that a finished sync left.
//
// It is not for users and may change with any version.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Retirement sets aside and drops the data of retired versions.
type Retirement struct {
	Deployments *deployment.Store
	Namespaces  map[string]record.Namespace // by version
	// Scratch returns the database of a version for scratch collections. Nil: it is not configured
	// here.
	Scratch func(version string) Space
	// NoteBreaches records the breaches that were found in a kind's fence.
	NoteBreaches func(ctx context.Context, d upgradestate.Deployment, version, kind string, found []record.Breach) error
	Log          *zap.Logger
}

// Space is a namespace that can also drop scratch collections by name prefix.
type Space interface {
	record.Namespace
	Sweep(ctx context.Context, prefix string) error
}

// clearer is a namespace that can remove the data that its backend keeps next to the kinds.
type clearer interface {
	// Clear returns the names of data of others, which stay in the database.
	Clear(ctx context.Context) (left []string, err error)
}

// closer is a namespace that can make the names of a retired version return an error.
type closer interface {
	// CloseName gives clients that still use a kind's own name the error text said.
	CloseName(ctx context.Context, f record.Fence, said string, known []string) ([]record.Breach, error)
}

// longestWait bounds the leader's sleep before a drop, because the machine's clock may be changed
// meanwhile.
const longestWait = time.Minute

// retryKept is the pause after a failed drop of kept data.
const retryKept = 10 * time.Second

// CommandWait bounds how long an operator's command waits for the database of a version. The
// command refuses after it, instead of leaving the operator without an answer.
const CommandWait = 8 * time.Second

// Run sets aside or drops the namespace that is being retired, and drops kept data after their
// time. No other code drops an old namespace. The record names the namespace until everything is
// gone, so the next leader can continue.
//
// Nothing is dropped in the remaining namespaces:
//
//   - Guards of managed kinds are part of the records. They are lower than those of any later
//     direction, and its writes replace them.
//   - Guards next to fixed-name kinds that keep their name stop a late applier of the ended
//     direction.
//   - Lineage moves with its namespace through switches, and the next direction uses it.
//   - Tombstones are removed by purge.
func (rt Retirement) Run(ctx context.Context) error {
	return recordloop.Follow(ctx, rt.Deployments, rt.Log, func(d upgradestate.Deployment) (again time.Duration, err error) {
		if r := d.Retire; r != nil {
			if err := rt.retireVersion(ctx, d, *r); err != nil {
				return 0, fmt.Errorf("retired version %s is not dropped yet, and no upgrade can begin until then (if its database is lost for good, run 'complete' for it again): %w", r.Version, err)
			}
			return 0, nil // the next version of the record shows that it is done
		}
		for _, k := range d.Kept {
			wait := untilDropped(k, time.Now())
			if wait <= 0 {
				err := rt.dropKept(ctx, d, k.Namespace)
				// One failure must not keep the other namespaces from being dropped.
				if err == nil {
					continue
				}
				// Nothing waits for the drop, and a person may have to act first: retry slowly.
				wait = retryKept
				if ctx.Err() == nil {
					rt.Log.Warn("data of a retired version are not dropped yet",
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

// untilDropped returns how long a retired namespace is still kept. If the time cannot be parsed,
// the namespace is kept until a person sets another one.
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

// retireVersion sets aside or drops everything of the version that is being retired. It skips parts
// that are done already.
func (rt Retirement) retireVersion(ctx context.Context, d upgradestate.Deployment, r upgradestate.Retire) error {
	ns, _ := d.Namespace(r.Version)
	var done upgradestate.Event = upgradestate.Dropped{Version: r.Version}
	var left []string
	var err error
	if r.Lost {
		rt.Log.Warn("the database of a retired version was declared lost: nothing is dropped there", zap.String("version", r.Version), zap.String("location", ns.Location))
	} else if r.Until != "" {
		done = upgradestate.SetAside{Version: r.Version}
		err = rt.setAside(ctx, d, ns)
	} else {
		left, err = rt.dropAll(ctx, d, ns, anyName)
	}
	if err != nil {
		return err
	}
	// Before the transition: the next leader would not repeat it.
	if err := rt.Deployments.ForgetVersion(ctx, d, r.Version); err != nil {
		return err
	}
	if _, err := rt.Deployments.Apply(ctx, done); err != nil {
		return err
	}
	rt.Log.Info("version is retired", zap.String("version", r.Version), zap.String("location", ns.Location),
		zap.String("kept until", r.Until), zap.Strings("left in the database", left))
	return nil
}

// dropKept drops the data that were set aside.
func (rt Retirement) dropKept(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	left, err := rt.dropAll(ctx, d, ns, func(k upgradestate.Kind) string { return upgradestate.RetiredName(ns.Version, k) })
	if err != nil {
		return err
	}
	if _, err := rt.Deployments.Apply(ctx, upgradestate.Dropped{Version: ns.Version}); err != nil {
		return err
	}
	rt.Log.Info("data of a retired version are dropped", zap.String("version", ns.Version),
		zap.String("location", ns.Location), zap.Strings("left in the database", left))
	return nil
}

// retiredDatabase returns the database of a retired version, and whether it is cleared already. It
// returns an error if it is not the database in the record.
func (rt Retirement) retiredDatabase(ctx context.Context, ns upgradestate.Namespace) (db record.Namespace, cleared bool, err error) {
	db = rt.Namespaces[ns.Version]
	if db == nil {
		return nil, false, fmt.Errorf("version %s is not configured here: keep it in dbs until its data are dropped", ns.Version)
	}
	cleared, err = rt.unowned(ctx, ns)
	return db, cleared, err
}

// refuser is a database that tells a refusal, such as of the login, from silence.
type refuser interface {
	Refused(err error) bool
}

// Lacks returns why the data of a version cannot be set aside or dropped now. A retirement would
// wait for that, and block upgrades and rollbacks. gone reports whether the database may be lost: it
// is not configured, does not answer, or is missing. It is false for a database that answers and
// refuses, which an operator can correct.
func (rt Retirement) Lacks(ctx context.Context, d upgradestate.Deployment, version string) (gone bool, why error) {
	ns, ok := d.Namespace(version)
	if kept, is := upgradestate.KeptNamespace(d, version); is {
		ns, ok = kept.Namespace, true
	}
	if !ok {
		return false, nil
	}
	db := rt.Namespaces[version]
	if db == nil {
		return true, fmt.Errorf("version %s is not configured here: add it to dbs", version)
	}
	// The caller waits for the answer.
	bounded, cancel := context.WithTimeout(ctx, CommandWait)
	defer cancel()
	_, err := db.Identity(bounded)
	if err == nil {
		_, err = rt.unowned(bounded, ns)
	}
	if err == nil || ctx.Err() != nil {
		return false, ctx.Err()
	}
	var mismatch *identity.MismatchError
	if errors.As(err, &mismatch) {
		gone = mismatch.Lost
	} else {
		r, ok := db.(refuser)
		gone = !ok || !r.Refused(err)
	}
	return gone, fmt.Errorf("database of %s: %w", version, err)
}

// setAside renames a version's collections to names that no process uses. The rename is a fence for
// processes that paused while the version served or was a target.
func (rt Retirement) setAside(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	db, cleared, err := rt.retiredDatabase(ctx, ns)
	if err != nil || cleared {
		return err
	}
	if err := rt.closeNames(ctx, d, ns); err != nil { // before a view's collection gets another name
		return err
	}
	for _, k := range ns.Kinds {
		if err := setAsideKind(ctx, db, ns.Version, k); err != nil {
			return fmt.Errorf("set %s of %s aside: %w", k.Kind, ns.Version, err)
		}
	}
	return rt.closeNames(ctx, d, ns) // names that a collection had until now
}

// closeNames makes the names of a retired version return an error. An outdated application would
// otherwise find no data, and its inserts would create a collection that no version reads. A name
// that another version uses in the same database stays as it is.
func (rt Retirement) closeNames(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace) error {
	db, ok := rt.Scratch(ns.Version).(closer)
	if !ok {
		return nil
	}
	said := fmt.Sprintf("this is the name of version %s, which was completed: ask the Deployment API for the place of the data", ns.Version)
	known := identity.KnownIDs(d)
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
		if err := rt.NoteBreaches(ctx, d, ns.Version, k.Kind, found); err != nil {
			return err
		}
	}
	return nil
}

// setAsideKind renames a kind's collection, which it finds by identity, under any name. A missing
// collection is no error. A person must drop a collection without an identity.
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

// anyName lets dropAll drop a kind under any name.
func anyName(upgradestate.Kind) string { return "" }

// dropAll drops a version's data in its database, and its marks last. named returns the name that a
// kind's collection must have; "" allows any name. A collection with another name stays.
func (rt Retirement) dropAll(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace, named func(upgradestate.Kind) string) (left []string, err error) {
	db, cleared, err := rt.retiredDatabase(ctx, ns)
	if err != nil || cleared {
		return nil, err
	}
	closeNames := func() error {
		if d.Retire == nil {
			return nil // closed when it was set aside; another owner may use the names now
		}
		return rt.closeNames(ctx, d, ns)
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
			rt.Log.Warn("a collection of a retired version does not have the name under which it was set aside, so somebody uses it: it stays",
				zap.String("version", ns.Version), zap.String("kind", k.Kind), zap.String("collection", other))
		}
	}
	// Again: a dropped collection may have had its own name until now.
	if err := closeNames(); err != nil {
		return nil, err
	}
	if err := rt.release(ctx, d, ns.Version); err != nil {
		return nil, err
	}
	return rt.clear(ctx, ns.Version)
}

// dropKind drops a kind's collection, which it finds by identity. If named is not empty and the
// collection has another name, it stays, and dropKind returns that name. A missing collection is no
// error. A person must drop a collection without an identity.
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
	// The collection is gone. Drop removes the backend's own data next to it.
	if err := db.Drop(ctx, tok); err != nil && !errors.Is(err, record.ErrFenced) {
		return "", err
	}
	return "", nil
}

// droppedByHand returns an error while a collection without an identity exists. Its name alone does
// not prove that it is the right one.
func droppedByHand(ctx context.Context, db record.Namespace, k upgradestate.Kind) error {
	info, err := db.Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, k.Physical)
	if err == nil && info.Exists {
		err = fmt.Errorf("its identity is unknown: drop collection %s by hand", k.Physical)
	}
	return err
}

// clear removes scratch collections and the backend's own data.
func (rt Retirement) clear(ctx context.Context, version string) (left []string, err error) {
	scratch := rt.Scratch(version)
	if scratch == nil {
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

// unowned reports whether the database holds no identity any more. The last step of a retirement
// removes it. A database with another identity is an error.
func (rt Retirement) unowned(ctx context.Context, ns upgradestate.Namespace) (bool, error) {
	if ns.Identity.Database == "" {
		return false, nil // an older binary recorded no identity
	}
	id, err := rt.Namespaces[ns.Version].Identity(ctx)
	if err != nil || id.Database == "" {
		return err == nil, err
	}
	// A drop in the wrong database would destroy the data of others.
	if (upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}).Differs(ns.Identity) {
		return false, &identity.MismatchError{Version: ns.Version, Found: "it is not the database that the deployment uses, so nothing is dropped there: correct its endpoint, or its database or prefix, in dbs of the configuration"}
	}
	return false, nil
}

// release removes a retired version's marks and beat from its database.
func (rt Retirement) release(ctx context.Context, d upgradestate.Deployment, version string) error {
	owner := record.Owner{Deployment: d.Name, Version: version}
	if err := rt.Namespaces[version].Release(ctx, identity.BeatOwner(owner)); err != nil {
		return err
	}
	return rt.Namespaces[version].Release(ctx, owner)
}
