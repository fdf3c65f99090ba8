package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Unlived refuses databases that hold data of a deployment which the coordination store does not
// know. Such a store was lost or is the wrong one.
func Unlived(ctx context.Context, deployment string, databases map[string]record.Marker) error {
	for _, version := range slices.Sorted(maps.Keys(databases)) {
		owner := record.Owner{Deployment: deployment, Version: version}
		f, err := read(ctx, databases[version], owner)
		if err != nil {
			return fmt.Errorf("check the owner of the database of %s: %w", version, err)
		}
		for _, other := range f.others {
			// The namespace of another version: two entries of dbs are swapped.
			if other.Deployment == deployment && f.lived(other) && !f.lived(owner) {
				return &MismatchError{Version: version, Found: fmt.Sprintf("%s used it, not %s, and etcd has no such deployment: correct dbs in the configuration, or run 'dbcontroller recover'", other, version)}
			}
		}
		// Never start a used database from scratch: its records would be overwritten.
		if f.lived(owner) {
			was := ""
			if f.mark != nil {
				was = fmt.Sprintf(" (last seen in epoch %d%s)", f.mark.Epoch, currently(*f.mark, version))
			}
			return &MismatchError{Version: version, Found: fmt.Sprintf("%s used it%s, but etcd has no such deployment: %s; controllers never start it from the beginning", owner, was, recoverFirst)}
		}
	}
	return nil
}

// Distinct refuses two versions in one database. name returns the configured name of a version's
// database, which is known before any database has an identity.
func Distinct(ctx context.Context, databases map[string]record.Marker, name func(version string) string) error {
	seen := map[string]record.Identity{}
	for _, version := range slices.Sorted(maps.Keys(databases)) {
		id, err := databases[version].Identity(ctx)
		if err != nil {
			return fmt.Errorf("check the owner of the database of %s: %w", version, err)
		}
		for other, was := range seen {
			if was.Cluster != id.Cluster {
				continue // other cluster, or unknown; Enter compares identities later
			}
			// A new database has no identity yet, so compare the configured names as well.
			if was.Database != "" && was.Database == id.Database || id.Cluster != "" && name(other) == name(version) {
				return oneDatabase(other, version)
			}
		}
		seen[version] = id
	}
	return nil
}

func oneDatabase(a, b string) error {
	return &MismatchError{Version: b, Found: fmt.Sprintf("it is the database of %s under another name: give the entries %s and %s of dbs separate databases", a, a, b)}
}

// Enter checks, before collections are created for a version, that this is the Deployment's
// database for it and that no other owner has the kinds. It returns the database's identity. The
// first call stores that identity in the database.
func Enter(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker, kinds []string) (upgradestate.Identity, error) {
	owner := record.Owner{Deployment: d.Name, Version: version}
	// Identify first: every process must get the same identity, whichever enters first.
	made, err := db.Identify(ctx)
	if err != nil {
		return upgradestate.Identity{}, fmt.Errorf("database of %s: %w", version, err)
	}
	id := upgradestate.Identity{Cluster: made.Cluster, Database: made.Database}
	f, err := read(ctx, db, owner)
	if err != nil {
		return id, fmt.Errorf("database of %s: %w", version, err)
	}
	ns, _ := d.Namespace(version)
	if ns.Identity != (upgradestate.Identity{}) {
		if text := f.isMeant(d, ns); text != "" {
			return id, &MismatchError{Version: version, Found: text}
		}
	}
	// The same database must not serve two versions, even under two addresses.
	for _, other := range d.Namespaces {
		if other.Version != version && other.Identity.Database == id.Database && !other.Identity.Differs(id) {
			return id, oneDatabase(other.Version, version)
		}
	}
	for _, kind := range kinds {
		// A claim on a collection that is gone does not count.
		if c, ok := f.claims[kind]; ok && c.Owner != owner && (c.Name != "" || c.ID == "") {
			return id, &MismatchError{Version: version, Found: (&record.OwnedError{Kind: kind, Owner: c.Owner}).Error()}
		}
	}
	return id, nil
}

// Take claims the collections of kinds and creates the namespace's mark. Call it before the
// Deployment contains the kinds. A collection with another owner is a *MismatchError. keys describe
// the encryption of a new namespace without records; nil: not encrypted. Take ignores keys if the
// namespace has a mark, because its owner may already write.
func Take(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker, kinds []upgradestate.Kind, keys *sealed.State) error {
	owner := record.Owner{Deployment: d.Name, Version: version}
	// The mark comes first: a claim without a mark would look like a restored database.
	if err := begin(ctx, d, owner, db, keys); err != nil {
		return fmt.Errorf("database of %s: %w", version, err)
	}
	for _, k := range kinds {
		err := db.Claim(ctx, record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}, owner)
		var owned *record.OwnedError
		if errors.As(err, &owned) {
			return &MismatchError{Version: version, Found: owned.Error()}
		}
		if err != nil {
			return fmt.Errorf("database of %s: %w", version, err)
		}
	}
	return nil
}

// begin creates the mark of a namespace unless it exists.
func begin(ctx context.Context, d upgradestate.Deployment, owner record.Owner, db record.Marker, keys *sealed.State) error {
	text, err := state(d)
	if err != nil {
		return err
	}
	return put(ctx, db, owner, func(m *Mark) (bool, error) {
		// The mark of a used namespace is never replaced here.
		if m.rev != 0 {
			return false, nil
		}
		*m = Mark{Namespace: rand.Text(), Epoch: d.Epoch, Current: owner.Version == d.CurrentVersion, State: text, Keys: keys}
		return true, nil
	})
}

// put reads a mark, lets change edit it, and writes it back. It retries until no other write came
// in between.
func put(ctx context.Context, db record.Marker, owner record.Owner, change func(*Mark) (write bool, err error)) error {
	return putOn(ctx, db, owner, nil, change)
}

// putOn is put, on top of a mark that was read before. ahead nil: it reads the mark.
func putOn(ctx context.Context, db record.Marker, owner record.Owner, ahead *Mark, change func(*Mark) (write bool, err error)) error {
	for {
		has, was := ahead, bson.Raw(nil)
		if has == nil {
			var err error
			if has, _, err = readMark(ctx, db, owner); err != nil {
				return err
			}
		} else {
			was = has.body // an old read proves nothing but by the condition of the write
		}
		m := Mark{}
		if has != nil {
			m = *has
		}
		write, err := change(&m)
		if ahead != nil && (err != nil || !write) {
			ahead = nil // only the present mark can decide that
			continue
		}
		if err != nil || !write {
			return err
		}
		raw, err := m.encode(owner)
		if err != nil {
			return err
		}
		if raw.Rev = 0; has != nil {
			raw.Rev = has.rev // change may have replaced the whole mark
		}
		raw.Was, ahead = was, nil
		// After an unknown result the next read shows whether the write took effect.
		if err = db.PutMark(ctx, raw); !errors.Is(err, record.ErrMismatch) && !errors.Is(err, record.ErrUnknown) || ctx.Err() != nil {
			return err
		}
	}
}

// Adopt enters the databases of a record that an older binary created without identities. It
// refuses unless it finds every collection that the record knows.
func Adopt(ctx context.Context, d upgradestate.Deployment, version string, db Database) (upgradestate.Identity, error) {
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if k.ID == "" {
			continue
		}
		name, err := db.Locate(ctx, k.ID)
		// A collection under an unexpected name is probably in another database.
		if errors.Is(err, record.ErrNotFound) || err == nil && !slices.Contains(names(k), name) {
			return upgradestate.Identity{}, &MismatchError{Version: version, Found: fmt.Sprintf(
				"it has no collection %s of kind %s under the name %s from the deployment: correct its endpoint, or its database or prefix, in dbs of the configuration", k.ID, k.Kind, k.Physical)}
		}
		if err != nil {
			return upgradestate.Identity{}, fmt.Errorf("database of %s: %w", version, err)
		}
	}
	kinds := make([]string, len(ns.Kinds))
	for i, k := range ns.Kinds {
		kinds[i] = k.Kind
	}
	id, err := Enter(ctx, d, version, db, kinds)
	if err != nil {
		return id, err
	}
	return id, Take(ctx, d, version, db, ns.Kinds, nil) // nil keys: an older binary has written records
}
