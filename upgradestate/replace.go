package upgradestate

import (
	"fmt"
	"slices"
)

// Replace accepts the collections that now have the names of fixed-name kinds of the current
// version. An application, or a cluster that moves data, has replaced those in the record. Earlier
// copies no longer count. No shard is ready, and the followed version is copied and compared again
// from a position after the replacement (Images.Generation). The target is fenced first, as for
// another transformation. So a controller that has read a former collection cannot write there
// later.
//
// Replace is refused during a switch. Abort the attempt first. It ends a pass of an update that
// begins by itself (Following), and all of them go over the records again.
type Replace struct {
	Collections []Replaced
	At          string // RFC 3339, for people
}

// Replaced is a fixed-name kind of the current version with the former (Was) and present (Is)
// identity of its collection. They are equal if the collection was away under another name: its
// changes during that time are unknown.
type Replaced struct {
	Kind, Was, Is string
	// Count is Kind.Replaced in the caller's view; for another value the event is ErrOutdated. So
	// only one of several finders records a replacement.
	Count uint64
	// Restore is the data for lifting a fence of the new collection, as in Kind.Restore.
	Restore string
	// Detail describes for people the event and the place of the former collection.
	Detail string
}

func (Replace) event() {}

func (d *Deployment) replace(e Replace) error {
	if len(e.Collections) == 0 {
		return refused("replace: the event names no collection")
	}
	if d.Upgrade != nil && d.Upgrade.State != InitialSyncing {
		return refused("replace: a switch of upgrade %s runs: abort it first", d.Upgrade.ID)
	}
	// A pass may wait for the former collection, and would block the replacement for ever.
	d.yieldPass("a collection was replaced")
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
			return refused("replace: kind %s of %s is fenced or about to be renamed: wait until it ends", c.Kind, d.CurrentVersion)
		}
		for _, o := range source {
			if o != k && o.ID == c.Is {
				return refused("replace: collection %s is kind %s of %s", c.Is, o.Kind, d.CurrentVersion)
			}
		}
		// A new collection has its own options and TTL indexes.
		if k.Replaced++; c.Is != c.Was {
			k.ID, k.Restore, k.Expiry = c.Is, c.Restore, nil
		}
		d.addEntry(Entry{What: "replace", ID: c.Kind, To: d.CurrentVersion, Detail: fmt.Sprintf("collection %s for %s: %s", c.Is, c.Was, c.Detail)})
	}
	d.Following = nil // the passes went over other records
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

// copyAnew voids all copies from the current version in the present direction. Versions that are
// not followed now still have plans and checkpoints, which must not be resumed later.
func (d *Deployment) copyAnew() {
	// A new attempt number makes reports on their way outdated.
	if d.Upgrade != nil {
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
			// The namespace is not bound in this epoch, as after Adopt, and engines work for
			// generation 0.
			*m = Images{Epoch: d.Epoch, TransformHash: a.TransformHash, Generation: 1}
		}
	}
	if ok && (d.Upgrade == nil || !d.Upgrade.Snapshot) {
		d.keepOut(followed.TargetVersion)
	}
}

// Anew records which collections of the current version were replaced (Replace), while the copies
// from them are not compared again yet. It is for people. No decision depends on it. It counts for
// one direction, see OpenAnew.
type Anew struct {
	Version string     `json:"version"` // version with replaced collections
	To      string     `json:"to"`      // version that is copied again
	Epoch   uint64     `json:"epoch"`
	Kinds   []AnewKind `json:"kinds"` // in the order of their latest replacements
}

// AnewKind is the latest replacement of a kind's collection. Was is the collection before it. It
// equals the present one if that was away under another name.
type AnewKind struct {
	Kind string `json:"kind"`
	Was  string `json:"was"`
	At   string `json:"at,omitempty"` // RFC 3339, for people
}

// CopiedAnew reports that every shard has copied and compared everything since the replacements, as
// of Epoch and Seen. After another replacement, and during a switch, it is ErrOutdated. Without a
// replacement it is a no-op.
type CopiedAnew struct {
	To    string
	Epoch uint64
	Seen  Images
}

func (CopiedAnew) event() {}

// OpenAnew returns the replacements for which a copy is in progress, or nil. Without a version that
// follows the current one there is none.
func OpenAnew(d Deployment) *Anew {
	x := d.Anew
	if x == nil || x.Epoch != d.Epoch || x.Version != d.CurrentVersion || d.Upgrade != nil && d.Upgrade.Snapshot {
		return nil
	}
	if to, ok := Followed(d); !ok || to.TargetVersion != x.To {
		return nil
	}
	return x
}

// noteAnew records the replacements of an event for people.
func (d *Deployment) noteAnew(e Replace) {
	to, ok := Followed(*d)
	if !ok || d.Upgrade != nil && d.Upgrade.Snapshot {
		return // nothing was in sync with the former collections
	}
	next := &Anew{Version: d.CurrentVersion, To: to.TargetVersion, Epoch: d.Epoch}
	// A copy in progress for an earlier replacement goes on for both.
	if x := OpenAnew(*d); x != nil {
		next.Kinds = slices.Clone(x.Kinds)
	}
	for _, c := range e.Collections {
		next.Kinds = slices.DeleteFunc(next.Kinds, func(k AnewKind) bool { return k.Kind == c.Kind })
		next.Kinds = append(next.Kinds, AnewKind{Kind: c.Kind, Was: c.Was, At: e.At})
	}
	d.Anew = next
}

func (d *Deployment) copiedAnew(e CopiedAnew) error {
	ns, ok := d.Namespace(e.To)
	switch {
	case !ok || e.Epoch != d.Epoch || ns.Images != e.Seen:
		return outdated("comparison of %s after a replacement", e.To)
	case d.Upgrade != nil && d.Upgrade.State == Switching:
		return outdated("comparison of %s after a replacement: the switch runs", e.To)
	}
	if x := OpenAnew(*d); x != nil && x.To == e.To {
		d.Anew = nil
	}
	return nil
}

func (x *Anew) clone() *Anew {
	if x == nil {
		return nil
	}
	y := *x
	y.Kinds = slices.Clone(x.Kinds)
	return &y
}
