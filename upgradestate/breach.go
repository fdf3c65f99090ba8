package upgradestate

import "slices"

// Breach is that a fence which must be in force was not, as somebody found who looks at
// it. It was put back; what was accepted meanwhile is kept under a name of ours.
type Breach struct {
	At      string `json:"at,omitempty"` // RFC 3339, for people
	Version string `json:"version"`
	Kind    string `json:"kind"`
	What    string `json:"what"`            // for people
	Aside   string `json:"aside,omitempty"` // the collection that has what was accepted; empty: none was made
	Count   int64  `json:"count,omitempty"` // documents in it when it was found
	// Accepted: a person has dealt with it. It counts no more, and is kept so that it is
	// not found a second time.
	Accepted bool `json:"accepted,omitempty"`
}

// maxBreaches keeps the record small. What is no longer in it was accepted.
const maxBreaches = 50

// Breached notes what was found. The same collection once; without one, the same finding
// once until it was accepted.
type Breached struct{ Breach Breach }

// AcceptBreaches says that a person has dealt with all that was found so far. Repeated, a no-op.
type AcceptBreaches struct{}

func (Breached) event()       {}
func (AcceptBreaches) event() {}

// OpenBreaches are those that nobody has dealt with. As long as there is one, the two
// versions are not equal, and going back would lose it.
func OpenBreaches(d Deployment) []Breach {
	return slices.DeleteFunc(slices.Clone(d.Breaches), func(b Breach) bool { return b.Accepted })
}

func (d *Deployment) breached(e Breached) error {
	b := e.Breach
	if _, known := d.Namespace(b.Version); !known || b.Kind == "" || b.What == "" {
		return refused("breached: %s of %s: it is not said what was found where", b.Kind, b.Version)
	}
	b.Accepted = false
	again := slices.ContainsFunc(d.Breaches, func(old Breach) bool {
		same := old.Version == b.Version && old.Kind == b.Kind && old.Aside == b.Aside
		return same && (b.Aside != "" || old.What == b.What && !old.Accepted)
	})
	if again {
		return nil
	}
	if len(d.Breaches) >= maxBreaches {
		i := slices.IndexFunc(d.Breaches, func(old Breach) bool { return old.Accepted })
		if i < 0 {
			return nil // fifty of them speak for themselves
		}
		d.Breaches = slices.Delete(d.Breaches, i, i+1)
	}
	d.Breaches = append(d.Breaches, b)
	d.addEntry(Entry{What: "breach", From: b.Version, ID: b.Kind, Detail: b.What})
	return nil
}

func (d *Deployment) acceptBreaches() error {
	any := false
	for i := range d.Breaches {
		any = any || !d.Breaches[i].Accepted
		d.Breaches[i].Accepted = true
	}
	if any {
		d.addEntry(Entry{What: "accept-breaches"})
	}
	return nil
}
