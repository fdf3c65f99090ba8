package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// Different is what a comparison found in a version that follows the current one, and nobody has
// resolved yet. It blocks the switch to it. It counts for one direction and generation of Images:
// another one compares everything by itself.
type Different struct {
	Version    string   `json:"version"`
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation,omitempty"`
	Count      int64    `json:"count"`           // groups, without those that are parked or waived
	Names      []string `json:"names,omitempty"` // of some of them, at most maxDifferentNames
	At         string   `json:"at,omitempty"`    // RFC 3339, for people
	// Repair is the latest request to compare and correct everything; empty: nobody has asked.
	// Left are the shards that have not done so since.
	Repair string `json:"repair,omitempty"`
	Left   []int  `json:"left,omitempty"`
}

// maxDifferentNames keeps the record small.
const maxDifferentNames = 10

type (
	// Compared says what a whole comparison of a version with the current one found, as the
	// record was at Epoch and Seen. Nothing ends what one before it found. After another epoch,
	// generation or fence it is ErrOutdated.
	Compared struct {
		Version string
		Epoch   uint64
		Seen    Images
		Count   int64
		Names   []string
		At      string
	}

	// Repair asks for all groups of the version that differs to be compared and corrected. ID is
	// new for each request. While one is being done another is a no-op.
	Repair struct{ Version, ID string }

	// Repaired says that shards have been compared and corrected for a request. For any other than
	// the latest it is ErrOutdated. With the last shard the difference is resolved: what could not
	// be corrected is parked.
	Repaired struct {
		Version, ID string
		Shards      []int
	}
)

func (Compared) event() {}
func (Repair) event()   {}
func (Repaired) event() {}

// OpenDifferent is the difference that counts now; nil: there is none.
func OpenDifferent(d Deployment) *Different {
	x := d.Different
	if x == nil || x.Epoch != d.Epoch || x.Version == d.CurrentVersion {
		return nil
	}
	if ns, ok := d.Namespace(x.Version); !ok || ns.Images.Epoch == d.Epoch && ns.Images.Generation != x.Generation {
		return nil
	}
	return x
}

// DifferentLine says in one line, for people, what differs and what to do; "" is nothing.
func DifferentLine(d Deployment) string {
	x := OpenDifferent(d)
	switch {
	case x == nil:
		return ""
	case x.Repair != "":
		return fmt.Sprintf("the repair of %s, in which a comparison found %s: %d of %d shards are compared", x.Version, x.groups(), d.RingSize-len(x.Left), d.RingSize)
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
			d.addEntry(Entry{What: "verify", To: e.Version, Detail: "a comparison found no difference any longer"})
		}
		return nil
	}
	names := e.Names[:min(len(e.Names), maxDifferentNames)]
	if open != nil && open.Version == e.Version && open.Count == e.Count && slices.Equal(open.Names, names) {
		return nil
	}
	next := &Different{Version: e.Version, Epoch: d.Epoch, Generation: ns.Images.Generation, Count: e.Count, Names: slices.Clone(names), At: e.At}
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
		return refused("repair: upgrade %s is switching: wait for its end", d.Upgrade.ID)
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
	d.addEntry(Entry{What: "repair", To: e.Version, Detail: "everything was compared and corrected; what cannot be is parked"})
	return nil
}
