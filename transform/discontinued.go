package transform

import (
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// SyncsFrom reports whether records of a source kind are migrated. Other kinds of
// the source take part in the switch alone: to scan them is not wrong, but of no use.
func SyncsFrom(d Direction, kind string) bool {
	_, ok, _ := d.GroupOf(kind, "") // answers for the kind before it looks at the key
	return ok
}

// SyncsTo reports whether records of a target kind are written.
func SyncsTo(d Direction, kind string) bool {
	_, ok, _ := d.GroupOfTarget(kind, "")
	return ok
}

// SearchedTo reports whether records of a target kind are written, and what the source does
// not have is to be looked for among them. In a twin it is found next to what the source has.
func SearchedTo(d Direction, kind string) bool {
	return SyncsTo(d, kind) && !slices.ContainsFunc(d.SourceKinds(), func(k record.KindSpec) bool { return d.Twin(k.Name) == kind })
}

// oneSided reports whether a spec has kinds of one version only.
func (sp Spec) oneSided() bool { return sp.Discontinued || sp.Introduced || sp.introduced != "" }

// addOneSided makes the kinds of a spec without a counterpart part of the direction's
// kinds and of none of its groups. why is the reason why records of the new version cannot
// go back; those that were declared discontinued are not missed.
func (d *direction) addOneSided(c compiled, why string) {
	for _, k := range c.source.Kinds {
		d.sourceKinds = append(d.sourceKinds, k.KindSpec)
		if why != "" {
			if d.stranded == nil {
				d.stranded = map[string]error{}
			}
			d.stranded[k.Name] = fmt.Errorf("kind %s of %s has no counterpart in %s: %s", k.Name, d.from, d.to, why)
		}
	}
	for _, k := range c.target.Kinds {
		d.targetKinds = append(d.targetKinds, k.KindSpec)
	}
}

// checkOneSided checks a spec that is declared discontinued or introduced.
func checkOneSided(sp Spec) error {
	what, has, side, other, none := "discontinued", "Old", sp.Old, sp.New, "New"
	if sp.Introduced {
		what, has, side, other, none = "introduced", "New", sp.New, sp.Old, "Old"
	}
	switch {
	case sp.Discontinued && sp.Introduced:
		return fmt.Errorf("spec %s: it is both Discontinued and Introduced: make two specs", sp.Name)
	case len(side.Kinds) == 0:
		return fmt.Errorf("spec %s: %s has no kinds", sp.Name, has)
	case len(other.Kinds) > 0 || other.Anchor != nil:
		return fmt.Errorf("spec %s: %s kinds have no %s", sp.Name, what, none)
	case sp.Up != nil || sp.Down != nil:
		return fmt.Errorf("spec %s: %s kinds have neither Up nor Down", sp.Name, what)
	}
	for _, k := range side.Kinds {
		switch {
		case k.Name == "":
			return fmt.Errorf("spec %s: a kind of %s has no name", sp.Name, has)
		case k.GroupOf != nil || k.Select != nil:
			return fmt.Errorf("spec %s: %s kind %s has no groups", sp.Name, what, k.Name)
		}
	}
	return nil
}
