package upgradestate

import (
	"fmt"
	"slices"
)

// Breach records that a check found a required fence missing at the database. The controller that
// records it puts the fence back. Documents that the database accepted meanwhile are kept in a
// collection of this project.
type Breach struct {
	At      string `json:"at,omitempty"` // RFC 3339, for people
	Version string `json:"version"`
	Kind    string `json:"kind"`
	What    string `json:"what"`            // for people
	Aside   string `json:"aside,omitempty"` // collection with the accepted documents; empty: none
	Count   int64  `json:"count,omitempty"` // documents in it when the breach was found
	// Accepted means that an operator has handled the breach. It no longer counts, and stays in the
	// list so that it is not found a second time.
	Accepted bool `json:"accepted,omitempty"`
}

// maxBreaches bounds the size of the record. A full list loses an accepted breach first.
const maxBreaches = 50

// Breached adds a breach. The same collection counts once. Without a collection, the same finding
// counts once until it is accepted, with the largest Count.
type Breached struct{ Breach Breach }

// AcceptBreaches accepts all breaches found so far. A repetition is a no-op.
type AcceptBreaches struct{}

func (Breached) event()       {}
func (AcceptBreaches) event() {}

// OpenBreaches returns the breaches that no operator has accepted. While there is one, the two
// versions are not equal, and a rollback would lose the accepted documents.
func OpenBreaches(d Deployment) []Breach {
	return slices.DeleteFunc(slices.Clone(d.Breaches), func(b Breach) bool { return b.Accepted })
}

func (d *Deployment) breached(e Breached) error {
	b := e.Breach
	if _, known := d.Namespace(b.Version); !known || b.Kind == "" || b.What == "" {
		return refused("breached: %s of %s: the event lacks the mark or the finding", b.Kind, b.Version)
	}
	b.Accepted = false
	// The check repeats and must not fill the list with one finding.
	i := slices.IndexFunc(d.Breaches, func(old Breach) bool {
		same := old.Version == b.Version && old.Kind == b.Kind && old.Aside == b.Aside
		return same && (b.Aside != "" || old.What == b.What && !old.Accepted)
	})
	again := i >= 0
	// A collection that was set aside is found for as long as it is there.
	if again && b.Aside != "" {
		return nil
	}
	if again {
		d.Breaches[i].Count = max(d.Breaches[i].Count, b.Count)
	}
	ended, err := d.endAttempt(b)
	if err != nil || again {
		return err
	}
	// The current version has these writes and serves on, and the next attempt takes them along.
	b.Accepted = ended && b.Aside == ""
	if len(d.Breaches) >= maxBreaches {
		i := slices.IndexFunc(d.Breaches, func(old Breach) bool { return old.Accepted })
		if i < 0 {
			return nil // fifty open ones need no further evidence
		}
		d.Breaches = slices.Delete(d.Breaches, i, i+1)
	}
	d.Breaches = append(d.Breaches, b)
	d.addEntry(Entry{What: "breach", From: b.Version, ID: b.Kind, Detail: b.What})
	return nil
}

// endAttempt ends the attempt at the switch if a fence of the current version was missing in it: the
// target may lack writes that passed the fence. It reports whether the breach is one of an attempt.
func (d *Deployment) endAttempt(b Breach) (bool, error) {
	u := d.Upgrade
	if u == nil || u.Snapshot || u.State != Switching || b.Version != d.CurrentVersion {
		return false, nil
	}
	return true, d.voidReports(fmt.Sprintf("a fence was not in force: %s of %s: %s", b.Kind, b.Version, b.What))
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
