package identity

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Replaced describes a fixed-name kind of the current version: under its name, the application now
// reaches another collection, or none. That is no mismatch: the application decides which
// collection has the name. Controllers follow it (upgradestate.Replace).
type Replaced struct {
	Version, Kind string
	Was           string // identity of the known collection
	Away          string // present name of Was; empty: gone
	Is            string // identity of the collection with the kind's name; empty: none
	Met           string // finding in the changes, if Was has its name again
}

// Replacements returns the fixed-name kinds of the current version with a replaced collection. db
// is the current version's database. It reads only names and claims, and no records.
func Replacements(ctx context.Context, d upgradestate.Deployment, db record.Marker) ([]Replaced, error) {
	ns, _ := d.Namespace(d.CurrentVersion)
	f := facts{claims: map[string]record.Claim{}}
	claims, err := db.Claims(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		f.claims[c.Kind] = c
	}
	var all []Replaced
	for _, k := range ns.Kinds {
		if r, ok := f.replaced(d, ns, k); ok {
			all = append(all, r)
		}
	}
	return all, nil
}

// replaced reports whether a kind's application reaches another collection than the Deployment has.
// During a switch, the announced and fenced names count as the kind's own.
func (f facts) replaced(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) (Replaced, bool) {
	c, ok := f.claims[k.Kind]
	if !ok || c.Owner != (record.Owner{Deployment: d.Name, Version: ns.Version}) || ns.Version != d.CurrentVersion || !k.Fixed || k.ID == "" {
		return Replaced{}, false
	}
	switch {
	// At rest, the collection with the kind's own name is the application's.
	case own(d, ns, k):
		ok = c.Bearer != k.ID
	case d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching && !k.Hidden:
		ok = c.ID == k.ID && !slices.Contains(names(k), c.Name) // no controller announced that name
	default:
		ok = false
	}
	if !ok {
		return Replaced{}, false
	}
	r := Replaced{Version: ns.Version, Kind: k.Kind, Was: k.ID, Is: c.Bearer}
	// A claim on the new collection does not show the old one's name.
	if c.ID == k.ID {
		r.Away = c.Name
	}
	return r, true
}

// own reports whether a kind is at rest under its application's name: neither hidden, pending nor
// fenced.
func own(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	return ns.Version == d.CurrentVersion && k.Fixed && k.ID != "" && !k.Hidden && k.Pending == nil && k.Fenced == ""
}

// String describes the replacement for operators, with advice if they have to act.
func (r Replaced) String() string {
	if r.Met != "" {
		return fmt.Sprintf("collection %s of %s (%s): %s; the changes in between are unknown, so everything is copied and compared again", r.Kind, r.Version, r.Was, r.Met)
	}
	was := fmt.Sprintf("collection %s of %s (%s)", r.Kind, r.Version, r.Was)
	if r.Away != "" {
		was += " was renamed to " + r.Away
	} else {
		was += " was dropped or recreated"
	}
	switch {
	case r.Is != "":
		return fmt.Sprintf("%s, and another collection, %s, has its name: controllers follow it, and copy and compare everything again", was, r.Is)
	case r.Away != "":
		return fmt.Sprintf("%s, and no collection has its name: rename it back, or rename or create the one that the application uses; until then no switch begins, and the other version keeps what was copied", was)
	default:
		return fmt.Sprintf("%s, and no collection has its name: restore or create it; until then no switch begins, and the other version keeps what was copied", was)
	}
}

// Rivals returns the fixed-name kinds of a version that lost their own name to a collection without
// their claim. A preview of a recovery shows them.
func (e Evidence) Rivals(version string) (rivals []Replaced) {
	f := e.Found[version]
	seen, _ := f.Mark.Deployment() // Rebuild reports its error
	ns, _ := seen.Namespace(version)
	for _, c := range f.Claims {
		if k, ok := ns.Kind(c.Kind); !ok || !k.Fixed {
			continue
		}
		if c.Bearer != "" && c.Bearer != c.ID {
			rivals = append(rivals, Replaced{Version: version, Kind: c.Kind, Was: c.ID, Away: c.Name, Is: c.Bearer})
		}
	}
	return rivals
}

// KnownIDs returns the identities of all collections in the record.
func KnownIDs(d upgradestate.Deployment) []string {
	var known []string
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			known = append(known, k.ID)
		}
	}
	return known
}
