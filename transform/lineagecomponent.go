package transform

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// Component is one group by name, or a set of groups by content that must be written together.
// Groups by content are linked if a record moves between them, or if one now makes a record that
// another one made.
type Component struct {
	// Units are the requested units of the component and the ones that waited for its groups. For a
	// group by name it holds the group.
	Units []GroupID
	// Version is the version of the source snapshot that the component was computed from.
	Version record.Version
	// Write brings the target to the state of the source. It expects everything that it depends on
	// to be unchanged. If Failed is not empty, Write only records which group the failed units wait
	// for. It is empty if lineage has that already.
	Write record.GroupWrite
	// InSync reports that Write would change nothing. For a group by name whose target was not read
	// (Resolver.Compare) it is unknown and false.
	InSync bool
	// Failed lists the units that keep the component from being written, each with the reason.
	// Resolve the other units again, with these in Resolver.Apart.
	Failed []Failure

	src, held []record.Record // of a group by name; the fields below are for groups by content
	x         *resolution     // nil for a group by name
	units     []*memberState
	targets   []*targetState // the requested ones
	groups    []*groupState
}

// Failure is a unit that cannot be migrated, with the reason.
type Failure struct {
	Unit GroupID
	Err  error
}

// ByContent reports whether the component consists of groups by content.
func (c *Component) ByContent() bool { return c.x != nil }

// Differ returns the units that differ between source and target: the failed units, or all units of
// a component that is not in sync.
func (c *Component) Differ() []GroupID {
	switch {
	case len(c.Failed) > 0:
		ids := make([]GroupID, len(c.Failed))
		for i, f := range c.Failed {
			ids[i] = f.Unit
		}
		return ids
	case c.InSync:
		return nil
	default:
		return c.Units
	}
}

// What describes the first target record that differs from the result, and the differing field,
// without values. It is empty if the component failed or is in sync.
func (c *Component) What() string {
	if len(c.Failed) > 0 || c.InSync {
		return ""
	}
	for _, w := range c.Write.Writes {
		held, there := c.heldRecord(w.Kind, w.Key)
		name := fmt.Sprintf("%s %s", w.Kind, w.Key)
		switch {
		// Skip lineage entries and records that are equal.
		case c.ByContent() && w.Kind == c.x.lineage, w.Doc == nil && !there, there && bytes.Equal(w.Doc, held.Doc):
		case w.Doc == nil:
			return name + " is there as well"
		case !there:
			return name + " is not there"
		default:
			if field, differ := fieldThatDiffers(w.Doc, held.Doc, false); differ {
				return name + " has another " + field
			}
			return name + " has its fields in another order"
		}
	}
	return "its lineage"
}

// heldRecord returns the target's present record at a key that the component writes.
func (c *Component) heldRecord(kind string, key record.Key) (record.Record, bool) {
	if c.ByContent() {
		t := c.x.targets[ref{kind, key}]
		if t == nil || !t.live {
			return record.Record{}, false
		}
		return t.rec, true
	}
	at := slices.IndexFunc(c.held, func(h record.Record) bool { return h.Kind == kind && h.Key == key })
	if at < 0 {
		return record.Record{}, false
	}
	return c.held[at], true
}

// Held reports whether the target holds a record that the component writes or deletes. The answer
// is unknown for groups by content that failed.
func (c *Component) Held() bool {
	if !c.ByContent() {
		return len(c.held) > 0
	}
	return slices.ContainsFunc(c.Write.Writes, func(w record.Write) bool {
		t := c.x.targets[ref{w.Kind, w.Key}]
		return t != nil && t.live
	})
}

// Members returns the source records in the component's groups. For a group by name it returns the
// group, or nil if the source group is empty.
func (c *Component) Members() []GroupID {
	if !c.ByContent() {
		if len(c.src) == 0 {
			return nil
		}
		return c.Units
	}
	var ids []GroupID
	for _, g := range c.groups {
		for _, r := range g.src {
			ids = append(ids, unit{ref: ref{r.Kind, r.Key}}.id(c.x.spec))
		}
	}
	return ids
}

// Bytes returns the total size of the source records in the component's groups by content.
func (c *Component) Bytes() (n int) {
	for _, g := range c.groups {
		for _, r := range g.src {
			n += len(r.Doc)
		}
	}
	return n
}

// Left returns one member of each written group that no unit of the component belongs to now. A
// unit moved away from there or was deleted. No pending change leads to these groups, so only a
// request for the member compares them again.
func (c *Component) Left() []GroupID {
	// Groups that a unit still belongs to are compared because of that unit.
	stays := map[string]bool{}
	for _, m := range c.units {
		stays[m.content] = true
	}
	var ids []GroupID
	for _, g := range c.groups { // none of a group by name
		if len(g.src) > 0 && !stays[g.name] {
			ids = append(ids, unit{ref: ref{g.src[0].Kind, g.src[0].Key}}.id(c.x.spec))
		}
	}
	return ids
}

// Source returns the Difference.Source of a unit, or of the group by name. It covers the unit's
// source record, and the group's other members if every change of theirs writes the unit as well.
// It must depend on nothing else, such as the units that are resolved together. Otherwise a unit
// that was never written looks changed, the caller leaves it to a change that does not exist, and
// the unit is lost.
func (c *Component) Source(id GroupID) uint64 {
	if !c.ByContent() {
		return SourceState(c.src)
	}
	u, _ := unitOf(id.Name)
	var rs []record.Record
	in := ""
	// A target record is a unit because of its group, so the group's state decides.
	if t := c.x.targets[u.ref]; u.target && t != nil {
		in = t.group
	}
	if m := c.x.members[u.ref]; !u.target && m != nil {
		rs = append(rs, record.Record{Kind: m.kind, Key: m.key, Doc: m.rec.Doc})
		// While the member waits or moves, changes in the group write the others without it.
		if m.descent == (descent{group: m.content}) {
			in = m.content
		}
	}
	for _, g := range c.groups {
		if g.name != in || !u.target && !g.family.has(u.ref) {
			continue
		}
		for _, r := range g.src {
			if g.family.has(ref{r.Kind, r.Key}) {
				rs = append(rs, r)
			}
		}
	}
	return SourceState(rs)
}

// Blame returns the source record that stands for a unit that is not in sync: a failed source
// record if there is one, else any other of the component. A target record that no group lists or
// makes stands for itself, because no scan of the source finds it.
func (c *Component) Blame(id GroupID) GroupID {
	u, ok := unitOf(id.Name)
	// Everything else stands for itself already.
	if !c.ByContent() || !ok || !u.target || !c.knows(u.ref) {
		return id
	}
	// Prefer a failed member: an operator has to look at that record first.
	for _, f := range c.Failed {
		if u, ok := unitOf(f.Unit.Name); ok && !u.target {
			return f.Unit
		}
	}
	if len(c.units) > 0 {
		return unit{ref: c.units[0].ref}.id(c.x.spec)
	}
	for _, g := range c.groups {
		if len(g.family.members) > 0 {
			return unit{ref: g.family.members[0]}.id(c.x.spec)
		}
	}
	return id
}

// knows reports whether a group of the component lists a target record or makes it.
func (c *Component) knows(t ref) bool {
	return slices.ContainsFunc(c.groups, func(g *groupState) bool {
		return slices.Contains(g.family.targets, t) ||
			slices.ContainsFunc(g.out, func(r record.Record) bool { return r.Kind == t.kind && r.Key == t.key })
	})
}

// Rest returns the units that did not fail. They can be migrated without the failed ones.
func (c *Component) Rest() []GroupID {
	return slices.DeleteFunc(slices.Clone(c.Units), func(id GroupID) bool {
		return slices.ContainsFunc(c.Failed, func(f Failure) bool { return f.Unit == id })
	})
}

// Refuse marks a component as failed because the database refused its write. If some units move
// between groups, it blames only those, because a move is the likely cause.
func (c *Component) Refuse(err error) {
	if !c.ByContent() {
		c.Write, c.InSync, c.Failed = record.GroupWrite{}, false, []Failure{{c.Units[0], err}}
		return
	}
	var moving []*memberState
	for _, m := range c.units {
		// It belongs to two groups: lineage has the old one, its content the new one.
		if len(m.named()) > 1 {
			moving = append(moving, m)
		}
	}
	// No distinction is possible, so all units fail.
	if len(moving) == 0 || len(moving) == len(c.units) {
		c.fail(nil, nil, err)
		return
	}
	failed := map[*memberState]error{}
	for _, m := range moving {
		failed[m] = err
	}
	c.fail(failed, nil, nil)
}

// components splits the resolution into independent components, by union-find over groups and
// units.
func (x *resolution) components() []Component {
	parent := map[string]string{} // of a node; groups and units are nodes
	var find func(string) string
	find = func(n string) string {
		if p, ok := parent[n]; ok && p != n {
			root := find(p)
			parent[n] = root
			return root
		}
		parent[n] = n
		return n
	}
	link := func(a, b string) { parent[find(a)] = find(b) }
	groupNode := func(name string) string { return "g" + name }
	unitNode := func(r ref, target bool) string { return "u" + unit{r, target}.id(0).Name }

	dirty := x.dirty()
	// Write together every group that makes a target record, lists it, or is named in its lineage
	// entry. The same goes for a member and all groups that list it. Reads at different times may
	// show several such groups, and writing one alone would leave the others inconsistent.
	claims := map[ref]string{}
	claim := func(t ref, name string) {
		for _, other := range []string{claims[t], x.targets[t].group} {
			// Only dirty groups are written. Others keep their entries.
			if _, isDirty := slices.BinarySearch(dirty, other); isDirty {
				link(groupNode(name), groupNode(other))
			}
		}
		claims[t] = name
		if x.targets[t].unit {
			link(unitNode(t, true), groupNode(name))
		}
	}
	for _, name := range dirty {
		// Register the group, even if nothing links it.
		find(groupNode(name))
		g := x.groups[name]
		for _, r := range g.out {
			claim(ref{r.Kind, r.Key}, name)
		}
		for _, t := range g.family.targets {
			claim(t, name)
		}
		for _, r := range g.family.members {
			if m := x.members[r]; m != nil && m.known {
				link(unitNode(r, false), groupNode(name))
			}
		}
		for _, r := range g.family.waiting {
			if m := x.members[r]; m != nil && m.unit {
				link(unitNode(r, false), groupNode(name))
			}
		}
	}
	parts := map[string]*Component{}
	part := func(node string) *Component {
		root := find(node)
		if parts[root] == nil {
			parts[root] = &Component{x: x, Version: x.version}
		}
		return parts[root]
	}
	for _, m := range x.members {
		if m.unit {
			for _, n := range m.named() {
				link(unitNode(m.ref, false), groupNode(n))
			}
		}
	}
	for _, t := range x.targets {
		if t.unit && t.group != "" {
			link(unitNode(t.ref, true), groupNode(t.group))
		}
	}
	// All links are complete. Collect groups and units by their root.
	for _, name := range dirty {
		c := part(groupNode(name))
		c.groups = append(c.groups, x.groups[name])
	}
	for _, m := range sortedStates(x.members) {
		if m.unit {
			c := part(unitNode(m.ref, false))
			c.units = append(c.units, m)
			c.Units = append(c.Units, unit{ref: m.ref}.id(x.spec))
		}
	}
	for _, t := range sortedStates(x.targets) {
		if t.unit {
			c := part(unitNode(t.ref, true))
			c.targets = append(c.targets, t)
			c.Units = append(c.Units, unit{t.ref, true}.id(x.spec))
		}
	}
	out := make([]Component, 0, len(parts))
	// Sorted, so that retries write components in the same order.
	for _, root := range slices.Sorted(maps.Keys(parts)) {
		c := parts[root]
		c.build()
		out = append(out, *c)
	}
	return out
}

// sortedStates returns states in the order of their records, so that writes and reports do not
// depend on map order.
func sortedStates[S any](states map[ref]S) []S {
	out := make([]S, 0, len(states))
	for _, r := range slices.SortedFunc(maps.Keys(states), ref.compare) {
		out = append(out, states[r])
	}
	return out
}
