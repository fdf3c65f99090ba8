package identity

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Replaced is a fixed-name kind of the current version whose application reaches another
// collection under its name than the Deployment knows, or none. It is no mismatch: the
// application decides which collection bears the name, and controllers follow it
// (upgradestate.Replace).
type Replaced struct {
	Version, Kind string
	Was           string // identity of the collection that the Deployment knows
	Away          string // name that Was bears now; empty: it is gone
	Is            string // identity of the collection that bears the kind's name; empty: none does
	Met           string // what the changes show, where the very collection has its name again
}

// Replacements compares the collections of the current version's fixed-name kinds with the
// Deployment. db is the current version's database. It looks at names and claims alone.
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

// replaced reports whether a kind's application reaches another collection than the Deployment
// has. While a fence is announced or in force its names count as well.
func (f facts) replaced(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) (Replaced, bool) {
	c, ok := f.claims[k.Kind]
	if !ok || c.Owner != (record.Owner{Deployment: d.Name, Version: ns.Version}) || ns.Version != d.CurrentVersion || !k.Fixed || k.ID == "" {
		return Replaced{}, false
	}
	switch {
	case own(d, ns, k):
		ok = c.Bearer != k.ID
	case d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching && !k.Hidden:
		ok = c.ID == k.ID && !slices.Contains(names(k), c.Name) // nobody has announced such a name
	default:
		ok = false
	}
	if !ok {
		return Replaced{}, false
	}
	r := Replaced{Version: ns.Version, Kind: k.Kind, Was: k.ID, Is: c.Bearer}
	if c.ID == k.ID {
		r.Away = c.Name
	}
	return r, true
}

// own reports whether a kind is at rest under the name that its application knows.
func own(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	return ns.Version == d.CurrentVersion && k.Fixed && k.ID != "" && !k.Hidden && k.Pending == nil && k.Fenced == ""
}

// String says what is the matter, and what to do if anything.
func (r Replaced) String() string {
	if r.Met != "" {
		return fmt.Sprintf("collection %s of %s (%s): %s; what changed meanwhile is not known, and all of it is copied and compared anew", r.Kind, r.Version, r.Was, r.Met)
	}
	was := fmt.Sprintf("collection %s of %s (%s)", r.Kind, r.Version, r.Was)
	if r.Away != "" {
		was += " was renamed to " + r.Away
	} else {
		was += " was dropped or made anew"
	}
	switch {
	case r.Is != "":
		return fmt.Sprintf("%s, and another one, %s, has its name: it is followed, and all of it is copied and compared anew", was, r.Is)
	case r.Away != "":
		return fmt.Sprintf("%s, and no collection has its name: rename it back, or rename or create the one that the application uses; until then no switch begins, and the other version keeps what was copied", was)
	default:
		return fmt.Sprintf("%s, and no collection has its name: restore or create it; until then no switch begins, and the other version keeps what was copied", was)
	}
}

// Rivals returns the fixed-name kinds of a version whose own name another collection bears than
// the one that was noted as theirs, for a preview of a recovery.
func (e Evidence) Rivals(version string) (rivals []Replaced) {
	f := e.Found[version]
	seen, _ := f.Mark.Deployment() // Rebuild reports what is wrong with it
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
