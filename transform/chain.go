package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A chain migrates over inner versions without storing them. It joins the steps v1 to v2 and v2 to
// v3 to one step v1 to v3. Each joined spec runs one spec of each step in memory, so the engine
// reads and writes each record once. A joined step can be joined again.
//
// Specs are joined if one makes a kind of the middle version and the other takes it. Specs that
// share no kind stay apart. Each joined spec needs group names that follow from the keys of both
// outer versions. One of its specs, the root, provides the names. Every other spec, a leaf, is tied
// to the root in one of two ways:
//
//   - by key: the leaf has one record of the middle version in each of its groups, found
//     by its key. The leaf's group follows from that key, and so does the root's.
//   - by name: leaf and root call their groups the same. This cannot be seen from the
//     declarations; every record in between is checked, and a group with a record that
//     belongs elsewhere is an error, which parks it.
//
// Steps that fit neither way cannot be joined. The deployment then has to stop at the middle
// version.

// ErrNoChain is returned by Direction if several steps connect the versions and cannot run as one.
// Upgrade to the version in between first.
var ErrNoChain = errors.New("the transformations between the versions cannot be run as one")

// joint holds the state of joining two adjacent steps.
type joint struct {
	a, b                   step
	aUp, aDown, bUp, bDown *direction
	makers, takers         map[string]int  // by middle kind: its spec in a, its spec in b
	dropped                map[string]bool // middle kinds that b discontinues
	fresh                  map[string]bool // middle kinds that a introduces
}

// join joins two adjacent steps to one.
func join(a, b step) (step, error) {
	j := &joint{
		a: a, b: b, makers: map[string]int{}, takers: map[string]int{}, dropped: map[string]bool{}, fresh: map[string]bool{},
		aUp: unchecked(compile(a.oldVersion, a.newVersion, "", a.specs, true)), aDown: unchecked(compile(a.newVersion, a.oldVersion, "", a.specs, false)),
		bUp: unchecked(compile(b.oldVersion, b.newVersion, "", b.specs, true)), bDown: unchecked(compile(b.newVersion, b.oldVersion, "", b.specs, false)),
	}
	if err := j.match(); err != nil {
		return step{}, fmt.Errorf("%w: %w: upgrade from %s to %s first", ErrNoChain, err, a.oldVersion, a.newVersion)
	}
	out := step{oldVersion: a.oldVersion, newVersion: b.newVersion}
	for _, p := range j.parts() {
		sp, err := j.spec(p)
		if err != nil {
			return step{}, fmt.Errorf("%w: %w: upgrade from %s to %s first", ErrNoChain, err, a.oldVersion, a.newVersion)
		}
		out.specs = append(out.specs, sp)
	}
	return out, nil
}

// match finds, for each kind of the middle version, the spec that makes it and the spec that takes
// it.
func (j *joint) match() error {
	// Kinds that b takes or discontinues. All other middle kinds would lose their records.
	for i, sp := range j.b.specs {
		for _, k := range sp.Old.Kinds {
			if sp.Discontinued {
				j.dropped[k.Name] = true
			} else {
				j.takers[k.Name] = i
			}
		}
	}
	for i, sp := range j.a.specs {
		for _, k := range sp.New.Kinds {
			j.fresh[k.Name] = sp.Introduced
		}
		if sp.oneSided() && !sp.Introduced {
			continue
		}
		for _, k := range sp.New.Kinds {
			if _, taken := j.takers[k.Name]; !taken && !j.dropped[k.Name] {
				return fmt.Errorf("transformer %s makes %s of %s, which no transformer from %s to %s takes or declares as discontinued",
					sp.Name, k.Name, j.a.newVersion, j.b.oldVersion, j.b.newVersion)
			}
			if !sp.Introduced {
				j.makers[k.Name] = i
			}
		}
	}
	return nil
}

// part is a set of specs that share middle kinds, directly or through other specs.
type part struct{ a, b []int }

// parts splits the specs of both steps into parts, in the order of the specs.
func (j *joint) parts() []part {
	// grow follows shared middle kinds from spec to spec, back and forth between the steps.
	aSeen, bSeen := make([]bool, len(j.a.specs)), make([]bool, len(j.b.specs))
	var grow func(p *part, a, b int)
	grow = func(p *part, a, b int) {
		if a >= 0 && !aSeen[a] {
			aSeen[a] = true
			p.a = append(p.a, a)
			for _, k := range j.a.specs[a].New.Kinds {
				if i, ok := j.takers[k.Name]; ok && !j.a.specs[a].oneSided() {
					grow(p, -1, i)
				}
			}
		}
		if b >= 0 && !bSeen[b] {
			bSeen[b] = true
			p.b = append(p.b, b)
			for _, k := range j.b.specs[b].Old.Kinds {
				if i, ok := j.makers[k.Name]; ok && !j.b.specs[b].oneSided() {
					grow(p, i, -1)
				}
			}
		}
	}
	var parts []part
	for i, sp := range j.a.specs {
		if !aSeen[i] && sp.introduced == "" && !sp.Introduced { // grow finds the others from their takers
			parts = append(parts, part{})
			grow(&parts[len(parts)-1], i, -1)
		}
	}
	for i, sp := range j.b.specs {
		if !bSeen[i] && !sp.Discontinued { // a kind that only the middle version has is unknown outside
			parts = append(parts, part{})
			grow(&parts[len(parts)-1], -1, i)
		}
	}
	return parts
}

// spec joins the specs of one part.
func (j *joint) spec(p part) (Spec, error) {
	// A spec of the same name in both steps keeps its name.
	var names []string
	for _, i := range p.a {
		names = append(names, j.a.specs[i].Name)
	}
	for _, i := range p.b {
		if name := j.b.specs[i].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := Spec{Name: strings.Join(names, "+")}
	switch {
	case len(p.b) == 0: // this step or the next one discontinues the kinds
		out.Discontinued = true
		for _, i := range p.a {
			for _, k := range j.a.specs[i].Old.Kinds {
				out.Old.Kinds = append(out.Old.Kinds, GroupedKind{KindSpec: k.KindSpec})
			}
		}
		return out, nil
	case len(p.a) == 0: // this step introduces the kinds, or they have no source in the old version
		sp := j.b.specs[p.b[0]]
		out.New = Side{Kinds: slices.Clone(sp.New.Kinds), Anchor: sp.New.Anchor}
		if sp.Introduced || slices.ContainsFunc(sp.Old.Kinds, func(k GroupedKind) bool { return j.fresh[k.Name] }) {
			// The declaration states that the old version never had these kinds.
			for i := range out.New.Kinds {
				out.New.Kinds[i] = GroupedKind{KindSpec: out.New.Kinds[i].KindSpec}
			}
			out.New.Anchor, out.Introduced = nil, true
			return out, nil
		}
		if out.introduced = sp.introduced; out.introduced == "" {
			out.introduced = fmt.Sprintf("transformer %s makes it of %s of %s", sp.Name, sp.Old.Kinds[0].Name, j.b.oldVersion)
		}
		return out, nil
	}
	// A fresh kind has no records to read from the old version, so a transformer that also takes
	// other kinds could not run.
	for _, i := range p.b {
		for _, k := range j.b.specs[i].Old.Kinds {
			if j.fresh[k.Name] {
				return Spec{}, fmt.Errorf("transformer %s takes %s, which %s introduces, together with kinds that %s has", j.b.specs[i].Name, k.Name, j.a.newVersion, j.a.oldVersion)
			}
		}
	}
	// All specs of the part run together, as one transformer.
	run := &run{j: j, middle: j.a.newVersion}
	var err error
	if out.Old, out.New, run.sameNames, err = j.tie(p); err != nil {
		return Spec{}, err
	}
	for _, i := range p.a {
		out.UpNeedsHave = out.UpNeedsHave || j.aUp.specs[i].needsHave
		out.DownNeedsHave = out.DownNeedsHave || j.aDown.specs[i].needsHave
		run.upHeld = run.upHeld || j.aUp.specs[i].needsHave
		for _, k := range j.a.specs[i].New.Kinds {
			// Down has to restore the dropped kinds of the middle version. Only the old version
			// still holds them.
			out.DownNeedsHave = out.DownNeedsHave || j.dropped[k.Name]
			run.downHeld = run.downHeld || j.dropped[k.Name]
		}
	}
	for _, i := range p.b {
		out.UpNeedsHave = out.UpNeedsHave || j.bUp.specs[i].needsHave
		out.DownNeedsHave = out.DownNeedsHave || j.bDown.specs[i].needsHave
		run.downHeld = run.downHeld || j.bDown.specs[i].needsHave
	}
	out.Up, out.Down = run.up, run.down
	// The chain's result is taken back as a whole. The middle version is computed from both ends,
	// so no single step can give it back.
	out.Reversal = j.reversal(p)
	return out, nil
}

// reversal combines the specs of a part: ReversalNone if any spec has it, else ReversalTried if any
// spec has it, else ReversalOwn.
func (j *joint) reversal(p part) Reversal {
	out := ReversalOwn
	see := func(sp Spec) {
		switch {
		case sp.Reversal == ReversalNone || out == ReversalNone:
			out = ReversalNone
		case sp.Reversal == ReversalTried:
			out = ReversalTried
		}
	}
	for _, i := range p.a {
		see(j.a.specs[i])
	}
	for _, i := range p.b {
		see(j.b.specs[i])
	}
	return out
}
