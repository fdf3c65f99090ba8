package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Reform recreates the images of a version that is not the current one, after its database was
// restored from a backup.
type Reform struct {
	Deployments Deployments
	// Apply makes one transition of the Deployment.
	Apply func(ctx context.Context, e upgradestate.Event) error
	// Make creates the collection of a kind that the backup lacks.
	Make func(ctx context.Context, d upgradestate.Deployment, version string, k upgradestate.Kind) (record.Token, error)
	// Unfence ends the fence that the record has for a kind (record.Fencer). In the database, the
	// kind has its application's name.
	Unfence func(ctx context.Context, k upgradestate.Kind) error
	// Finding identifies the restore (RestoredError), so that several controllers answer it once.
	Finding string
}

// Do finds the collections in the restored database, lets the record adopt them
// (upgradestate.Rebuild), and renews the marks. It may be repeated. Another database, or one
// without a mark of the version, is a *MismatchError: such a database was lost, not restored.
func (r Reform) Do(ctx context.Context, version string, db record.Marker, why string) error {
	d, err := r.Deployments.Get(ctx)
	if err != nil {
		return err
	}
	ns, known := d.Namespace(version)
	// A retired version has no data to recover.
	if !known || upgradestate.Retired(d, version) {
		return nil
	}
	owner := record.Owner{Deployment: d.Name, Version: version}
	look := func() (facts, error) {
		f, err := read(ctx, db, owner)
		if err != nil {
			return f, fmt.Errorf("check the owner of the database of %s: %w", version, err)
		}
		return f, f.isOlder(d, ns)
	}
	f, err := look()
	if err != nil {
		return err
	}
	// An ended fence is never restored. Refuse first, or a collection that nobody rebuilds would accept
	// writes.
	if err := f.areOwn(d, ns); err != nil {
		return err
	}
	if u := d.Upgrade; u != nil && u.TargetVersion != version && u.State == upgradestate.Switching {
		return fmt.Errorf("rebuild %s during the switch to %s: %w", version, u.TargetVersion, upgradestate.ErrOutdated)
	}
	ended, err := r.endFences(ctx, ns, f)
	// Ending a fence may have changed the places.
	if err == nil && ended {
		f, err = look()
	}
	if err != nil {
		return err
	}
	found, err := r.find(ctx, d, ns, f)
	if err != nil {
		return err
	}
	// Store the places first. A kill after it leaves claims to renew, and repeating does that.
	ev := upgradestate.Rebuild{Version: version, Seen: ns.Images, Reason: why, Found: found, Finding: r.Finding}
	if err := r.Apply(ctx, ev); err != nil {
		return fmt.Errorf("rebuild %s: %w", version, err)
	}
	for _, p := range found {
		tok := record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
		if err := db.Claim(ctx, tok, owner); err != nil {
			return fmt.Errorf("database of %s: %w", version, err)
		}
	}
	// Read again: the marks must hold the record with the adopted places.
	if d, err = r.Deployments.Get(ctx); err != nil {
		return err
	}
	return renew(ctx, d, owner, db)
}

// endFences ends the fences that the record has and the backup lacks. Another process may still
// read them in the record and restore them late (record.Fencer.Uphold). It would then move a
// collection away from the place that find reports.
func (r Reform) endFences(ctx context.Context, ns upgradestate.Namespace, f facts) (ended bool, err error) {
	for _, k := range ns.Kinds {
		c := f.claims[k.Kind]
		if !k.Fixed || k.Fenced == "" || k.Fence != string(record.FenceView) || c.Name != k.Kind || k.ID != "" && c.ID != k.ID {
			continue
		}
		if err := r.Unfence(ctx, k); err != nil {
			return ended, fmt.Errorf("end the fence of %s of %s, which the backup does not have: %w", k.Kind, ns.Version, err)
		}
		ended = true
	}
	return ended, nil
}

// isOlder returns an error unless the database is an earlier state of the namespace's database.
func (f facts) isOlder(d upgradestate.Deployment, ns upgradestate.Namespace) error {
	if err := f.isThere(d, ns); err != nil {
		return err
	}
	if f.mark == nil {
		return &MismatchError{Version: ns.Version, Found: f.fits(d, ns)}
	}
	// The backup knows a later epoch than the record, so the record is the old one.
	if f.mark.Epoch > d.Epoch {
		return &MismatchError{Version: ns.Version, Found: fmt.Sprintf("it was last seen in epoch %d, but the deployment is in epoch %d: %s", f.mark.Epoch, d.Epoch, recoverFirst)}
	}
	return nil
}

// find returns the places of the kinds that are not where the record has them. It creates the
// collections that the backup lacks.
func (r Reform) find(ctx context.Context, d upgradestate.Deployment, ns upgradestate.Namespace, f facts) (found []upgradestate.Place, err error) {
	for _, k := range ns.Kinds {
		c := f.claims[k.Kind]
		at := upgradestate.Place{Kind: k.Kind, Name: c.Name, ID: c.ID, Fixed: k.Fixed}
		switch {
		case k.ID == "":
			continue // no identities on this server; only the name counts
		case c.Name == "" && c.Instead != "":
			at.Name, at.ID = c.InsteadName, c.Instead // the restore recreated the collection
		case c.Name == "":
			tok, err := r.Make(ctx, d, ns.Version, k)
			if err != nil {
				return nil, fmt.Errorf("recreate the collection of kind %s of %s: %w", k.Kind, ns.Version, err)
			}
			at.Name, at.ID = tok.Name, tok.ID
		// The backup has it where the record has it, or where an announced rename may have moved
		// it.
		case c.ID == k.ID && (c.Name == k.Physical || k.Pending != nil && c.Name == k.Pending.To):
			continue
		}
		found = append(found, at)
	}
	return found, nil
}

// areOwn refuses kinds that another namespace has claimed.
func (f facts) areOwn(d upgradestate.Deployment, ns upgradestate.Namespace) error {
	for _, k := range ns.Kinds {
		c, claimed := f.claims[k.Kind]
		if k.ID != "" && claimed && c.Owner != (record.Owner{Deployment: d.Name, Version: ns.Version}) {
			return &MismatchError{Version: ns.Version, Found: fmt.Sprintf("the collection of kind %s belongs to %s", k.Kind, c.Owner)}
		}
	}
	return nil
}

// isThere refuses a database other than the namespace's. It ignores the collections.
func (f facts) isThere(d upgradestate.Deployment, ns upgradestate.Namespace) error {
	ns.Kinds = nil
	if text := f.isMeant(d, ns); text != "" {
		return &MismatchError{Version: ns.Version, Found: text}
	}
	return nil
}

// IsThere refuses a version's database if it is empty, or if the deployment means another one. A
// database restored from a backup passes.
func IsThere(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker) error {
	ns, _ := d.Namespace(version)
	f, err := read(ctx, db, record.Owner{Deployment: d.Name, Version: version})
	if err != nil {
		return fmt.Errorf("check the owner of the database of %s: %w", version, err)
	}
	return f.isThere(d, ns)
}

// renew updates the mark of a restored database to the present record, in any step of an upgrade.
func renew(ctx context.Context, d upgradestate.Deployment, owner record.Owner, db record.Marker) error {
	text, err := state(d)
	if err != nil {
		return err
	}
	err = put(ctx, db, owner, func(m *Mark) (bool, error) {
		if m.Epoch > d.Epoch {
			return false, errors.New("it was seen in a later epoch")
		}
		// The backup may be from before the first mark.
		if m.Namespace == "" {
			m.Namespace = rand.Text()
		}
		m.Epoch, m.Current, m.Next, m.Aborted, m.State = d.Epoch, owner.Version == d.CurrentVersion, nil, nil, text
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("mark the database of %s: %w", owner.Version, err)
	}
	return nil
}
