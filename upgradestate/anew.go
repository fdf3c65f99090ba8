package upgradestate

import "slices"

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
