package moves

import (
	"maps"
	"slices"

	"dbcontroller.dev/resource/region"
)

// Do is what a region does next about a record.
type Do int

// The steps of a region.
const (
	// Nothing: no move of the record concerns this region.
	Nothing Do = iota
	// Wait: the other region acts next.
	Wait
	// Write: the own record gets the state Decision.Next.
	Write
	// Reserve: the copy of Decision.Region becomes an own record with the state Decision.Next.
	Reserve
	// Delete: the own record goes.
	Delete
	// Confirm: the other region is asked whether it has the counterpart (Standing). Without it a
	// reservation goes, and a record that has left is Missing.
	Confirm
	// Hold: the other region has lost the record, and a person decides about it.
	Hold
	// Taken: another region wants to give a record to this one, which has one of that name.
	Taken
)

// Decision is the next step of a region.
type Decision struct {
	Do     Do
	Region string // the other one
	Next   region.Move
}

// Decide returns the next step of the region here about one record. own is the state of its own record,
// nil without one. copies has the states of the copies, by region. nonce makes a new nonce.
func Decide(here string, own *region.Move, copies map[string]region.Move, nonce func() string) Decision {
	if own == nil || own.Step == "" || own.Step == region.Arrived {
		for _, from := range slices.Sorted(maps.Keys(copies)) {
			c := copies[from]
			switch {
			case c.Step != region.Leaving || c.Region != here:
			case own != nil:
				return Decision{Do: Taken, Region: from}
			default:
				return Decision{Reserve, from, region.Move{Step: region.Arriving, Region: from, ID: c.ID, Nonce: nonce()}}
			}
		}
		return Decision{}
	}
	other := own.Region
	c, copied := copies[other]
	ours := copied && c.Region == here && c.ID == own.ID
	switch own.Step {
	case region.Leaving:
		// It is Arrived only if this region has an older state again. It has given the record away.
		if ours && (c.Step == region.Arriving || c.Step == region.Arrived) {
			return Decision{Write, other, region.Move{Step: region.Left, Region: other, ID: own.ID, Nonce: c.Nonce}}
		}
		return Decision{Do: Wait, Region: other}
	case region.Left:
		switch {
		case !ours || c.Nonce != own.Nonce:
			return Decision{Do: Confirm, Region: other} // it may have arrived and changed since
		case c.Step == region.Arrived:
			return Decision{Do: Delete, Region: other}
		}
		return Decision{Do: Wait, Region: other}
	case region.Missing:
		if ours && c.Nonce == own.Nonce && (c.Step == region.Arriving || c.Step == region.Arrived) {
			return Decision{Write, other, region.Move{Step: region.Left, Region: other, ID: own.ID, Nonce: own.Nonce}}
		}
		return Decision{Do: Hold, Region: other}
	default: // Arriving
		switch {
		case ours && c.Step == region.Left && c.Nonce == own.Nonce:
			return Decision{Write, other, region.Move{Step: region.Arrived, Region: other, ID: own.ID, Nonce: own.Nonce}}
		case ours && (c.Step == region.Leaving || c.Step == region.Missing && c.Nonce == own.Nonce):
			return Decision{Do: Wait, Region: other}
		}
		return Decision{Do: Confirm, Region: other}
	}
}

// Standing reports whether a record in the state theirs is the counterpart of a record of the region
// asking in the state own.
func Standing(asking string, own, theirs region.Move) bool {
	if theirs.Region != asking || theirs.ID != own.ID {
		return false
	}
	switch own.Step {
	case region.Arriving:
		return theirs.Step == region.Leaving || (theirs.Step == region.Left || theirs.Step == region.Missing) && theirs.Nonce == own.Nonce
	case region.Left:
		return (theirs.Step == region.Arriving || theirs.Step == region.Arrived) && theirs.Nonce == own.Nonce
	default:
		return false
	}
}
