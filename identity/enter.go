package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/upgradestate"
)

// Unlived refuses databases in which a namespace of a deployment has lived, where the
// coordination store knows no such deployment.
func Unlived(ctx context.Context, deployment string, databases map[string]record.Marker) error {
	for _, version := range slices.Sorted(maps.Keys(databases)) {
		owner := record.Owner{Deployment: deployment, Version: version}
		f, err := read(ctx, databases[version], owner)
		if err != nil {
			return fmt.Errorf("look whose the database of %s is: %w", version, err)
		}
		for _, other := range f.others {
			if other.Deployment == deployment && f.lived(other) && !f.lived(owner) {
				return &MismatchError{Version: version, Found: fmt.Sprintf("%s has lived in it, not %s, and etcd has no such deployment: correct dbs in the configuration, or run 'dbcontroller recover'", other, version)}
			}
		}
		if f.lived(owner) {
			was := ""
			if f.mark != nil {
				was = fmt.Sprintf(" (last seen in epoch %d%s)", f.mark.Epoch, currently(*f.mark, version))
			}
			return &MismatchError{Version: version, Found: fmt.Sprintf("%s has lived in it%s, and etcd has no such deployment: %s; it is never started anew", owner, was, recoverFirst)}
		}
	}
	return nil
}

// Distinct refuses two versions in one database. name is what the configuration calls the
// database of a version: it is known before any of them was ever identified.
func Distinct(ctx context.Context, databases map[string]record.Marker, name func(version string) string) error {
	seen := map[string]record.Identity{}
	for _, version := range slices.Sorted(maps.Keys(databases)) {
		id, err := databases[version].Identity(ctx)
		if err != nil {
			return fmt.Errorf("look whose the database of %s is: %w", version, err)
		}
		for other, was := range seen {
			if was.Cluster != id.Cluster {
				continue // or not known; then the identity shows it when the second one is entered
			}
			if was.Database != "" && was.Database == id.Database || id.Cluster != "" && name(other) == name(version) {
				return oneDatabase(other, version)
			}
		}
		seen[version] = id
	}
	return nil
}

func oneDatabase(a, b string) error {
	return &MismatchError{Version: b, Found: fmt.Sprintf("it is that of %s under another name: give the entries %s and %s of dbs each a database of its own", a, a, b)}
}

// Enter looks, before collections of kinds are made for a version, that the database is the
// one that the Deployment means, and nobody else's, and returns what it is. The first time it
// notes that in the database.
func Enter(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker, kinds []string) (upgradestate.Identity, error) {
	owner := record.Owner{Deployment: d.Name, Version: version}
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
	for _, other := range d.Namespaces {
		if other.Version != version && other.Identity.Database == id.Database && !other.Identity.Differs(id) {
			return id, oneDatabase(other.Version, version)
		}
	}
	for _, kind := range kinds {
		if c, ok := f.claims[kind]; ok && c.Owner != owner && (c.Name != "" || c.ID == "") {
			return id, &MismatchError{Version: version, Found: (&record.OwnedError{Kind: kind, Owner: c.Owner}).Error()}
		}
	}
	return id, nil
}

// Take claims the collections of kinds, and makes the namespace's mark. It is to be called
// before the Deployment contains them. What another has is a *MismatchError. keys are what the
// records of a namespace are encrypted with that has no mark yet, nor records; nil: nothing. Of one
// that has a mark they are not looked at: its owner may have begun to write.
func Take(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker, kinds []upgradestate.Kind, keys *sealed.State) error {
	owner := record.Owner{Deployment: d.Name, Version: version}
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

// begin makes the mark of a namespace unless there is one.
func begin(ctx context.Context, d upgradestate.Deployment, owner record.Owner, db record.Marker, keys *sealed.State) error {
	text, err := state(d)
	if err != nil {
		return err
	}
	return put(ctx, db, owner, func(m *Mark) (bool, error) {
		if m.rev != 0 {
			return false, nil
		}
		*m = Mark{Namespace: rand.Text(), Epoch: d.Epoch, Current: owner.Version == d.CurrentVersion, State: text, Keys: keys}
		return true, nil
	})
}

// put reads a mark and writes what change makes of it, until nobody was in between.
func put(ctx context.Context, db record.Marker, owner record.Owner, change func(*Mark) (write bool, err error)) error {
	for {
		has, _, err := readMark(ctx, db, owner)
		if err != nil {
			return err
		}
		m := Mark{}
		if has != nil {
			m = *has
		}
		write, err := change(&m)
		if err != nil || !write {
			return err
		}
		raw, err := m.encode(owner)
		if err != nil {
			return err
		}
		if raw.Rev = 0; has != nil {
			raw.Rev = has.rev // whatever change has made of it
		}
		if err = db.PutMark(ctx, raw); !errors.Is(err, record.ErrMismatch) && !errors.Is(err, record.ErrUnknown) || ctx.Err() != nil {
			return err
		}
	}
}

// Adopt notes, once, the databases of a record that an older binary has made: only where
// every collection that the record knows is found.
func Adopt(ctx context.Context, d upgradestate.Deployment, version string, db Database) (upgradestate.Identity, error) {
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if k.ID == "" {
			continue
		}
		name, err := db.Locate(ctx, k.ID)
		if errors.Is(err, record.ErrNotFound) || err == nil && !slices.Contains(names(k), name) {
			return upgradestate.Identity{}, &MismatchError{Version: version, Found: fmt.Sprintf(
				"collection %s of kind %s is not in it as %s, where the deployment has it: correct its endpoint, or its database or prefix, in dbs of the configuration", k.ID, k.Kind, k.Physical)}
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
	return id, Take(ctx, d, version, db, ns.Kinds, nil) // an older binary has written records
}
