package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Do removes what the removal names, and returns what remains in the databases, in sentences. A
// removal that stopped anywhere goes on with the next call.
func (w Work) Do(ctx context.Context, r deployment.Removal) (left []string, err error) {
	if err := w.Store.Idle(ctx); err != nil {
		return nil, err
	}
	if !r.Acting {
		// The databases may have changed since the check, and what follows has no way back.
		if err := w.Check(ctx, r); err != nil {
			return nil, err
		}
		r.Acting = true
		if r, err = w.Store.PutRemoval(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, ns := range r.Record.Namespaces {
		if w.lost(ns.Version) {
			left = append(left, fmt.Sprintf("everything in %s, the database of %s, which is lost", ns.Location, ns.Version))
			continue
		}
		// A wrong database must not look like one that an earlier call has emptied.
		if _, _, err := w.database(ctx, r, ns); err != nil {
			return nil, err
		}
		if !slices.Contains(r.Entered, ns.Version) {
			r.Entered = append(slices.Clone(r.Entered), ns.Version)
			if r, err = w.Store.PutRemoval(ctx, r); err != nil {
				return nil, err
			}
		}
		stays, err := w.empty(ctx, r, ns)
		if err != nil {
			return nil, fmt.Errorf("remove the data of %s: %w; repeat the command", ns.Version, err)
		}
		left = append(left, stays...)
	}
	if len(r.Kinds) > 0 {
		return left, w.endKinds(ctx, r)
	}
	// Only the views of completed versions can be left there.
	for _, version := range r.Record.Retired {
		db := w.Databases[version]
		if db == nil || w.lost(version) {
			continue
		}
		if _, err := db.Vacate(ctx); err != nil {
			return nil, fmt.Errorf("remove the views of %s, which was completed: %w; repeat the command", version, err)
		}
	}
	return left, w.Store.Erase(ctx, r)
}

// empty removes the deployment's data from the database of a version.
func (w Work) empty(ctx context.Context, r deployment.Removal, ns upgradestate.Namespace) (left []string, err error) {
	db, gone, err := w.database(ctx, r, ns)
	if err != nil || gone {
		return nil, err
	}
	others, err := taken(ctx, db, r.Record, ns)
	if err != nil {
		return nil, err
	}
	for _, k := range ns.Kinds {
		// An earlier call has ended the claim, and another deployment has the kind now.
		if _, is := others[k.Kind]; is || !affects(r, ns, k) {
			continue
		}
		if err := w.still(ctx, r); err != nil {
			return nil, err
		}
		stays, err := w.emptyKind(ctx, db, r, ns, k)
		if err != nil {
			return nil, err
		}
		if stays != "" {
			left = append(left, stays)
		}
	}
	if len(r.Kinds) > 0 {
		return left, nil
	}
	if err := w.still(ctx, r); err != nil {
		return nil, err
	}
	if err := w.sweep(ctx, db); err != nil {
		return nil, err
	}
	for _, owner := range owners(r.Record, ns.Version) {
		if err := db.Release(ctx, owner); err != nil {
			return nil, err
		}
	}
	remains, err := db.Vacate(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range remains {
		// Documents that fences have set aside. Anything else is of others.
		if strings.HasPrefix(name, "dbc_") {
			left = append(left, fmt.Sprintf("%s in %s", name, ns.Location))
		}
	}
	return left, nil
}

// still refuses to go on once the same command of somebody else has gone on or has ended: a new
// deployment may have the kinds by now.
func (w Work) still(ctx context.Context, r deployment.Removal) error {
	now, begun, err := w.Store.Removal(ctx)
	switch {
	case err != nil && !errors.Is(err, deployment.ErrNotFound):
		return err
	case err != nil || !begun || now.Revision != r.Revision:
		return refuse("somebody else continues or has ended this removal")
	}
	return nil
}

// sweep drops scratch collections, and lets a sharded cluster move chunks again. Another deployment in
// the database may be about to switch, and its own controllers do both.
func (w Work) sweep(ctx context.Context, db Database) error {
	marks, err := db.Marks(ctx)
	if err != nil || slices.ContainsFunc(marks, func(m record.Mark) bool { return m.Owner.Deployment != w.Store.Name() }) {
		return err
	}
	return errors.Join(preflight.Sweep(ctx, db), db.Sweep(ctx, syncer.TrialPrefix), db.UnpinChunks(ctx))
}

// emptyKind removes what the database holds about a kind. stays is the collection that remains.
func (w Work) emptyKind(ctx context.Context, db Database, r deployment.Removal, ns upgradestate.Namespace, k upgradestate.Kind) (stays string, err error) {
	tok := syncer.TokenOf(k)
	if tok.Name, err = locate(ctx, db, k); err != nil {
		return "", err
	}
	there := tok.Name != ""
	if !there {
		tok.Name = k.Physical
	}
	// In etcd, the roles of the application have lost permissions on the keys of a copy.
	if there && k.Fixed && k.Fence == string(record.FenceRole) && tok.Name != tok.Kind {
		if err := db.Unfence(ctx, record.Fence{Class: record.FenceRole, Token: tok, To: tok.Name, Restore: k.Restore}); err != nil {
			return "", err
		}
		tok.Name = tok.Kind
	}
	if there && drops(r, ns, k) {
		if err := db.Drop(ctx, tok); err != nil {
			return "", err
		}
		there = false
	}
	// Also for a collection that is gone: an earlier call may have died before this.
	if err := db.Forget(ctx, tok); err != nil {
		return "", err
	}
	if !there {
		return "", nil
	}
	return fmt.Sprintf("%s in %s", tok.Name, ns.Location), nil
}

// drops reports whether the collection of a kind goes too. Lineage is the product's own. A collection
// without an identity may be another one by now.
func drops(r deployment.Removal, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	return k.ID != "" && (transform.IsLineage(k.Kind) || r.DropCopies && copied(r.Record, ns))
}

// endKinds stores the record without the kinds that are forgotten. The marks in the databases come
// first: they hold a copy of the record, and a lower number of a kind's next name would look like a
// record from a backup.
func (w Work) endKinds(ctx context.Context, r deployment.Removal) error {
	next, err := without(r)
	if err != nil {
		return err
	}
	markers := map[string]record.Marker{}
	for _, ns := range next.Namespaces {
		if db := w.Databases[ns.Version]; db != nil && !w.lost(ns.Version) {
			markers[ns.Version] = db
		}
	}
	if err := identity.Finalize(ctx, next, markers); err != nil {
		return fmt.Errorf("%w; repeat the command", err)
	}
	return w.Store.EndRemoval(ctx, r, next)
}

// without returns the record without the kinds that are forgotten. Records of every other version are
// made again: a kind that is configured again with the same transformation has the same direction, and
// its checkpoints would say that all records are copied.
func without(r deployment.Removal) (upgradestate.Deployment, error) {
	d := upgradestate.Clone(r.Record)
	for i := range d.Namespaces {
		ns := &d.Namespaces[i]
		ns.Kinds = slices.DeleteFunc(ns.Kinds, func(k upgradestate.Kind) bool { return affects(r, *ns, k) })
	}
	// They were found possible with the kinds. Controllers announce them again.
	d.Available = nil
	for _, ns := range d.Namespaces {
		if ns.Version == d.CurrentVersion || upgradestate.Retired(d, ns.Version) {
			continue
		}
		var err error
		if d, err = upgradestate.Apply(d, upgradestate.Rebuild{Version: ns.Version, Seen: ns.Images, Reason: "kinds were forgotten"}); err != nil {
			return d, err
		}
	}
	return d, nil
}
