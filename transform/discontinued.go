package transform

import (
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// SyncsFrom reports whether the engine migrates records of a source kind. Other kinds only take
// part in the switch, and a scan of them finds nothing to migrate.
func SyncsFrom(d Direction, kind string) bool {
	_, ok, _ := d.GroupOf(kind, "") // answers for the kind before it looks at the key
	return ok
}

// SyncsTo reports whether the engine writes records of a target kind.
func SyncsTo(d Direction, kind string) bool {
	_, ok, _ := d.GroupOfTarget(kind, "")
	return ok
}

// SearchedTo reports whether a comparison must search a target kind for records that the source
// lacks. It is false for a kind that the engine does not write. It is also false for a twin,
// because comparing the source kind already reads the same keys on both sides.
func SearchedTo(d Direction, kind string) bool {
	return SyncsTo(d, kind) && !slices.ContainsFunc(d.SourceKinds(), func(k record.KindSpec) bool { return d.Twin(k.Name) == kind })
}

// oneSided reports whether a spec has kinds of one version only.
func (sp Spec) oneSided() bool { return sp.Discontinued || sp.Introduced || sp.introduced != "" }

// addOneSided adds the kinds of a spec without a counterpart to the direction's kinds, but to no
// group. why is the reason why records of the newer version cannot go back. It is empty for kinds
// that are declared discontinued or introduced, because their records stay behind by declaration.
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
		// Their collections must exist before the switch, although the engine writes nothing to
		// them.
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
