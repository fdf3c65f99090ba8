package upgradestate

import "fmt"

// Replace takes the collections that bear the names of fixed-name kinds of the current version
// now, after their applications, or a cluster that moves data, have replaced what the record
// knows. Nothing that was copied counts any longer: no shard is ready, and what is kept in sync
// with the current version is copied and compared anew from a place in the changes after the
// replacement (Images.Generation). The target is fenced first, as for another transformation, so
// that nobody who has read a former collection writes there later.
//
// It is refused while a switch runs: the attempt is given up first.
type Replace struct {
	Collections []Replaced
	At          string // RFC 3339, for people
}

// Replaced is a fixed-name kind of the current version whose collection was Was and is Is. They
// are equal where the collection was away under another name: its changes there are not known.
type Replaced struct {
	Kind, Was, Is string
	// Count is Kind.Replaced as the caller knows it: another is ErrOutdated, so that of several
	// who find one replacement one notes it.
	Count uint64
	// Restore is what lifting a fence of the new collection needs, as Kind.Restore.
	Restore string
	// Detail says for people what happened and where the former collection is.
	Detail string
}

func (Replace) event() {}

func (d *Deployment) replace(e Replace) error {
	if len(e.Collections) == 0 {
		return refused("replace: it is not said what")
	}
	if d.Upgrade != nil && d.Upgrade.State != InitialSyncing {
		return refused("replace: a switch of upgrade %s runs: abort it first", d.Upgrade.ID)
	}
	if d.Update != nil {
		return refused("replace: data update %s runs: cancel it first", d.Update.Name)
	}
	source := d.kinds(d.CurrentVersion)
	for _, c := range e.Collections {
		k := kindOf(source, c.Kind)
		switch {
		case k == nil || !k.Fixed || c.Was == "" || c.Is == "":
			return refused("replace: %s has no application's collection of kind %s", d.CurrentVersion, c.Kind)
		case k.ID != c.Was || k.Replaced != c.Count:
			return outdated("replace: kind %s of %s is collection %s after %d replacements", c.Kind, d.CurrentVersion, k.ID, k.Replaced)
		case k.Pending != nil || k.Hidden || k.Fenced != "":
			return refused("replace: kind %s of %s is fenced or about to be renamed: wait for its end", c.Kind, d.CurrentVersion)
		}
		for _, o := range source {
			if o != k && o.ID == c.Is {
				return refused("replace: collection %s is kind %s of %s", c.Is, o.Kind, d.CurrentVersion)
			}
		}
		if k.Replaced++; c.Is != c.Was {
			k.ID, k.Restore, k.Expiry = c.Is, c.Restore, nil
		}
		d.addEntry(Entry{What: "replace", ID: c.Kind, To: d.CurrentVersion, Detail: fmt.Sprintf("collection %s for %s: %s", c.Is, c.Was, c.Detail)})
	}
	d.copyAnew()
	d.noteAnew(e)
	return nil
}

func kindOf(kinds []*Kind, name string) *Kind {
	for _, k := range kinds {
		if k.Kind == name {
			return k
		}
	}
	return nil
}

// copyAnew voids all that was copied from the current version in the present direction. What is
// not followed now has its plan and checkpoints still, and must not go on with them later.
func (d *Deployment) copyAnew() {
	if d.Upgrade != nil { // another attempt, so that no report which is on its way counts
		d.Upgrade.Attempt++
		d.Upgrade.ReadyShards = []int{}
	}
	followed, ok := Followed(*d)
	for i := range d.Namespaces {
		ns := &d.Namespaces[i]
		m := &ns.Images
		a, offered := d.available(ns.Version)
		if ok && followed.TargetVersion == ns.Version {
			a, offered = followed, true
		}
		switch {
		case ns.Version == d.CurrentVersion:
		case m.Epoch == d.Epoch:
			m.Generation++
			m.Fences = 0
		case offered && a.TransformHash != "":
			// Nobody has bound it in this epoch, as after Adopt, and engines work for generation 0.
			*m = Images{Epoch: d.Epoch, TransformHash: a.TransformHash, Generation: 1}
		}
	}
	if ok && (d.Upgrade == nil || !d.Upgrade.Snapshot) {
		d.keepOut(followed.TargetVersion)
	}
}
