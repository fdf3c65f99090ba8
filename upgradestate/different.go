package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// Different is an unresolved finding of a comparison in a version that follows the current one. It
// blocks the switch to that version. It counts for one direction and generation of Images. Another
// one compares everything anyway.
type Different struct {
	Version    string   `json:"version"`
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation,omitempty"`
	Count      int64    `json:"count"`           // groups, without parked and waived ones
	Names      []string `json:"names,omitempty"` // some of the groups, at most maxDifferentNames
	At         string   `json:"at,omitempty"`    // RFC 3339, for people
	// Repair is the latest repair request; empty: none. Left are the shards that have not completed
	// it.
	Repair string `json:"repair,omitempty"`
	Left   []int  `json:"left,omitempty"`
}

// maxDifferentNames bounds the size of the record.
const maxDifferentNames = 10

type (
	// Compared reports the result of a whole comparison of a version with the current one, as of
	// Epoch and Seen. It replaces the result before it. A result without differences clears it. In
	// another epoch, generation or fence count it is ErrOutdated.
	Compared struct {
		Version string
		Epoch   uint64
		Seen    Images
		Count   int64
		Names   []string
		At      string
	}

	// Repair requests a comparison and repair of all groups of the version with differences. ID is
	// new for each request. During a repair another request is a no-op.
	Repair struct{ Version, ID string }

	// Repaired reports shards that have completed a repair request. For any request but the latest
	// it is ErrOutdated. The last shard resolves the difference: groups that could not be repaired
	// are parked.
	Repaired struct {
		Version, ID string
		Shards      []int
	}
)

func (Compared) event() {}
func (Repair) event()   {}
func (Repaired) event() {}

// OpenDifferent returns the difference that counts now, or nil.
func OpenDifferent(d Deployment) *Different {
	x := d.Different
	if x == nil || x.Epoch != d.Epoch || x.Version == d.CurrentVersion {
		return nil
	}
	// Another generation makes and compares all records again.
	if ns, ok := d.Namespace(x.Version); !ok || ns.Images.Epoch == d.Epoch && ns.Images.Generation != x.Generation {
		return nil
	}
	return x
}

// DifferentLine returns a line for people about the open difference and how to resolve it, or "".
func DifferentLine(d Deployment) string {
	x := OpenDifferent(d)
	switch {
	case x == nil:
		return ""
	case x.Repair != "":
		return fmt.Sprintf("the repair of %s, after a comparison found %s: %d of %d shards are compared", x.Version, x.groups(), d.RingSize-len(x.Left), d.RingSize)
	default:
		return fmt.Sprintf("'verify --repair': a comparison found %s in %s", x.groups(), x.Version)
	}
}

func (x Different) groups() string {
	text := fmt.Sprintf("%d groups that differ", x.Count)
	if x.Count == 1 {
		text = "1 group that differs"
	}
	if len(x.Names) == 0 {
		return text
	}
	more := ""
	if int64(len(x.Names)) < x.Count {
		more = " and others"
	}
	return fmt.Sprintf("%s (%s%s)", text, strings.Join(x.Names, ", "), more)
}

func (x *Different) clone() *Different {
	if x == nil {
		return nil
	}
	y := *x
	y.Names, y.Left = slices.Clone(x.Names), slices.Clone(x.Left)
	return &y
}

func (d *Deployment) compared(e Compared) error {
	ns, ok := d.Namespace(e.Version)
	switch {
	case !ok || e.Version == d.CurrentVersion:
		return outdated("comparison of %s", e.Version)
	// The records were made again after they were compared.
	case e.Epoch != d.Epoch || ns.Images != e.Seen:
		return outdated("comparison of %s", e.Version)
	}
	open := OpenDifferent(*d)
	if open == nil {
		d.Different = nil
	}
	if e.Count == 0 {
		if open != nil && open.Version == e.Version {
			d.Different = nil
			d.addEntry(Entry{What: "verify", To: e.Version, Detail: "a later comparison found no difference"})
		}
		return nil
	}
	names := e.Names[:min(len(e.Names), maxDifferentNames)]
	// The same finding must not fill the history, nor end a repair in progress.
	if open != nil && open.Version == e.Version && open.Count == e.Count && slices.Equal(open.Names, names) {
		return nil
	}
	next := &Different{Version: e.Version, Epoch: d.Epoch, Generation: ns.Images.Generation, Count: e.Count, Names: slices.Clone(names), At: e.At}
	// Images of another direction say nothing about this one.
	if ns.Images.Epoch != d.Epoch {
		next.Generation = 0
	}
	d.Different = next
	d.addEntry(Entry{What: "verify", To: e.Version, Detail: "a comparison found " + next.groups()})
	return nil
}

func (d *Deployment) repair(e Repair) error {
	x := OpenDifferent(*d)
	switch {
	case x == nil || x.Version != e.Version:
		return refused("repair: no comparison has found a difference in %q: run 'verify'", e.Version)
	case e.ID == "":
		return refused("repair: the request has no id")
	case d.Upgrade != nil && d.Upgrade.State == Switching:
		return refused("repair: upgrade %s is switching: wait until it ends", d.Upgrade.ID)
	// A second request would restart shards that are done.
	case x.Repair != "":
		return nil
	}
	next := x.clone()
	next.Repair, next.Left = e.ID, make([]int, d.RingSize)
	for s := range next.Left {
		next.Left[s] = s
	}
	d.Different = next
	d.addEntry(Entry{What: "repair", To: e.Version, Detail: x.groups()})
	return nil
}

func (d *Deployment) repaired(e Repaired) error {
	x := OpenDifferent(*d)
	if x == nil || x.Version != e.Version || x.Repair != e.ID || e.ID == "" {
		return outdated("repair of %s", e.Version)
	}
	next := x.clone()
	next.Left = slices.DeleteFunc(next.Left, func(s int) bool { return slices.Contains(e.Shards, s) })
	if d.Different = next; len(next.Left) > 0 {
		return nil
	}
	d.Different = nil
	d.addEntry(Entry{What: "repair", To: e.Version, Detail: "everything was compared and corrected; groups that cannot be corrected are parked"})
	return nil
}
