package removal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Database is the database of a version.
type Database interface {
	record.Namespace
	// Sweep drops scratch collections by name prefix.
	Sweep(ctx context.Context, prefix string) error
	// UnpinChunks allows moves of chunks that were stopped for a switch.
	UnpinChunks(ctx context.Context) error
	// Vacate drops the backend's own data once no deployment uses the database. It returns what
	// remains there.
	Vacate(ctx context.Context) (left []string, err error)
}

// Work removes a deployment or kinds of it.
type Work struct {
	Store *deployment.Store
	// Databases are the configured ones, by version.
	Databases map[string]Database
	// Lost are versions whose databases are lost. Nothing is removed there.
	Lost []string
}

// RefusedError says why a removal cannot begin or go on.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Check refuses a removal that must not begin. It changes nothing.
func (w Work) Check(ctx context.Context, r deployment.Removal) error {
	d := r.Record
	switch {
	case d.Upgrade != nil:
		return refuse("upgrade %s to %s is running: let it finish, or run 'dbcontroller abort'", d.Upgrade.ID, d.Upgrade.TargetVersion)
	case d.Retire != nil:
		return refuse("%s is being retired: wait until controllers have ended that", d.Retire.Version)
	case len(d.Kept) > 0 && len(r.Kinds) == 0:
		v := d.Kept[0].Namespace.Version
		return refuse("the collections of %s are still kept: run 'dbcontroller complete --version %s --keep-for 0s', and wait until they are dropped", v, v)
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if err := fenced(d, ns, k); affects(r, ns, k) && err != nil {
				return err
			}
		}
	}
	if err := w.rolled(ctx, r); err != nil {
		return err
	}
	if err := w.ours(ctx, r); err != nil {
		return err
	}
	if err := w.unknown(ctx, r.Record); err != nil {
		return err
	}
	return w.Store.Idle(ctx)
}

// ours refuses databases that are not those of the deployment, and kinds that another one has
// claimed.
func (w Work) ours(ctx context.Context, r deployment.Removal) error {
	for _, ns := range r.Record.Namespaces {
		if w.lost(ns.Version) {
			continue
		}
		db, _, err := w.database(ctx, r, ns)
		if err != nil {
			return err
		}
		if err := w.present(ctx, r.Record, ns, db); err != nil {
			return err
		}
		others, err := taken(ctx, db, r.Record, ns)
		if err != nil {
			return err
		}
		for _, k := range ns.Kinds {
			if by, is := others[k.Kind]; is && affects(r, ns, k) {
				return refuse("kind %s in the database of %s belongs to %s: run 'dbcontroller recover' first", k.Kind, ns.Version, by)
			}
		}
	}
	return nil
}

// present refuses a database that is newer or older than the record: the record may come from another
// etcd or a backup of it, and then it does not know which collections are in use.
func (w Work) present(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace, db Database) error {
	var mismatch *identity.MismatchError
	err := identity.Check(ctx, fixed(d), map[string]record.Marker{ns.Version: db})
	if errors.As(err, &mismatch) {
		return refuse("%v", err)
	}
	if err != nil {
		return err
	}
	pulse := identity.Pulse{Owner: record.Owner{Deployment: d.Name, Version: ns.Version}, DB: db, Beats: w.Store}
	var elsewhere *identity.ElsewhereError
	var restored *identity.RestoredError
	var forged *identity.ForgedBeatError
	if err = pulse.Look(ctx); errors.As(err, &elsewhere) || errors.As(err, &restored) || errors.As(err, &forged) {
		return refuse("%v", err)
	}
	return err
}

// fixed is a record that does not change: a removal has its place.
type fixed upgradestate.Deployment

func (f fixed) Get(context.Context) (upgradestate.Deployment, error) {
	return upgradestate.Deployment(f), nil
}

// unknown refuses databases of versions that the record does not have, if they have claims of the
// deployment: a controller died before it could store the version.
func (w Work) unknown(ctx context.Context, d upgradestate.Deployment) error {
	for _, version := range slices.Sorted(maps.Keys(w.Databases)) {
		if _, known := d.Namespace(version); known || w.lost(version) || upgradestate.Retired(d, version) {
			continue
		}
		claims, err := w.Databases[version].Claims(ctx)
		if err != nil {
			return fmt.Errorf("database of %s, which the deployment does not use: %w; take it out of dbs, or give --lost %s", version, err, version)
		}
		for _, c := range claims {
			if c.Owner.Deployment == d.Name {
				return refuse("kind %s in the database of %s belongs to %s, and the record in etcd lacks that: start a controller, stop it once it is ready, and repeat the command", c.Kind, version, c.Owner)
			}
		}
	}
	return nil
}

// fenced refuses a kind whose fence is in force, or may be. The seal of a copy is no such fence: it
// only renames what no client uses.
func fenced(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) error {
	if copied(d, ns) && (k.Fixed && k.Hidden || !k.Fixed) {
		return nil
	}
	by := k.Fenced
	if k.Pending != nil {
		by = k.Pending.To
	}
	switch {
	case by == "":
		return nil
	case ns.Version == d.CurrentVersion:
		return refuse("kind %s of %s, the current version, has the fence %s: start a controller, and wait until it has ended it", k.Kind, ns.Version, by)
	}
	return refuse("kind %s of %s has the fence %s: run 'dbcontroller complete --version %s --keep-for 0s', which ends it", k.Kind, ns.Version, by, ns.Version)
}

// copied reports whether a version holds only what controllers copied: no client has ever used it.
func copied(d upgradestate.Deployment, ns upgradestate.Namespace) bool {
	last := d.LastSwitch
	return ns.Version != d.CurrentVersion && !ns.Served && (last == nil || last.From != ns.Version && last.To != ns.Version)
}

func affects(r deployment.Removal, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	return len(r.Kinds) == 0 || slices.Contains(r.Kinds, deployment.RemovedKind{Version: ns.Version, Kind: k.Kind})
}

// rolled refuses to remove a deployment that a rollout still upgrades.
func (w Work) rolled(ctx context.Context, r deployment.Removal) error {
	if len(r.Kinds) > 0 {
		return nil
	}
	all, _, err := w.Store.Rollouts().All(ctx)
	if err != nil {
		return err
	}
	for _, ro := range all {
		_, _, has := ro.Item(w.Store.Name())
		if has && ro.State != rollout.Done && ro.State != rollout.RolledBack {
			return refuse("rollout %s, which is %s, upgrades it: wait until the rollout ends, or delete it", ro.Name, ro.State)
		}
	}
	return nil
}

// knownLost refuses a lost version that does not exist, such as a typing mistake.
func (w Work) knownLost(d upgradestate.Deployment) error {
	for _, version := range w.Lost {
		if _, known := d.Namespace(version); !known && w.Databases[version] == nil {
			return refuse("--lost %q: the deployment has no such version", version)
		}
	}
	return nil
}

// lost reports whether the database of a version is left alone.
func (w Work) lost(version string) bool { return slices.Contains(w.Lost, version) }

// database returns the database of a namespace. gone reports that an earlier call has removed
// everything there. It refuses a database other than the one in the record.
func (w Work) database(ctx context.Context, r deployment.Removal, ns upgradestate.Namespace) (db Database, gone bool, err error) {
	db = w.Databases[ns.Version]
	if db == nil {
		return nil, false, refuse("version %s, at %s, is not in dbs of the configuration: add it, or give --lost %s if its database is lost for good", ns.Version, ns.Location, ns.Version)
	}
	id, err := db.Identity(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("database of %s: %w; if it is lost for good, give --lost %s", ns.Version, err, ns.Version)
	}
	if (upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}).Differs(ns.Identity) {
		return nil, false, refuse("the database of %s is not the one that the deployment uses: correct its endpoint, or its database or prefix, in dbs of the configuration", ns.Version)
	}
	switch {
	case id.Database != "":
		return db, false, nil
	case ns.Identity.Database != "" && !slices.Contains(r.Entered, ns.Version):
		return nil, false, refuse("the database of %s is empty, or it is not the one that the deployment uses: correct its endpoint, or its database or prefix, in dbs of the configuration; if it is lost for good, give --lost %s", ns.Version, ns.Version)
	default:
		// An empty namespace may have no identity yet, and one that was removed has none any more.
		return db, true, nil
	}
}

// taken returns the kinds of a namespace that other deployments have claimed since, by kind.
func taken(ctx context.Context, db Database, d upgradestate.Deployment, ns upgradestate.Namespace) (map[string]record.Owner, error) {
	claims, err := db.Claims(ctx)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w", ns.Version, err)
	}
	others := map[string]record.Owner{}
	for _, c := range claims {
		if c.Owner != (record.Owner{Deployment: d.Name, Version: ns.Version}) {
			others[c.Kind] = c.Owner
		}
	}
	return others, nil
}

// locate returns the present name of a kind's collection, "" if it is gone.
func locate(ctx context.Context, db record.Namespace, k upgradestate.Kind) (string, error) {
	if k.ID == "" {
		return k.Physical, nil // nothing else is known of it
	}
	name, err := db.Locate(ctx, k.ID)
	if errors.Is(err, record.ErrNotFound) {
		return "", nil
	}
	return name, err
}

// owners are the names under which a version's namespace has marks.
func owners(d upgradestate.Deployment, version string) []record.Owner {
	owner := record.Owner{Deployment: d.Name, Version: version}
	return []record.Owner{identity.BeatOwner(owner), owner}
}
