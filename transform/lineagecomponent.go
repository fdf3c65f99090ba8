package transform

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// Component is a group by name, or groups by content that have to be written together,
// because a record moves between them, or what one made is now made by another.
type Component struct {
	// Units are those of the component that were asked for, and those that waited; of a group
	// by name, the group.
	Units []GroupID
	// Version is that of the source snapshot that everything was made of.
	Version record.Version
	// Write brings the target to what the source holds; what it depends on has to be there
	// as it was read. Where Failed is not empty it only notes which group the failed units
	// wait for, and nothing at all when that is known.
	Write record.GroupWrite
	// InSync reports that source and target are in sync: Write would not change anything. It
	// is not known, and false, of a group by name whose target was not read
	// (Resolver.Compare).
	InSync bool
	// Failed are the units that keep the component from being written, each with the
	// reason. The other units are to be resolved again, with these Apart.
	Failed []Failure

	src, held []record.Record // of a group by name; the rest is of groups by content
	x         *resolution     // nil for a group by name
	units     []*memberState
	targets   []*targetState // that were asked for
	groups    []*groupState
}

// Failure is a unit that cannot be migrated.
type Failure struct {
	Unit GroupID
	Err  error
}

// ByContent reports whether the component is groups by content.
func (c *Component) ByContent() bool { return c.x != nil }

// Differ lists the units that the target does not hold as the source has them: those that
// failed, or all of them unless the component is in sync.
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

// What names the first record that the target does not hold as it is made, and the field that
// differs, without its values. Empty where the component failed or is in sync.
func (c *Component) What() string {
	if len(c.Failed) > 0 || c.InSync {
		return ""
	}
	for _, w := range c.Write.Writes {
		held, there := c.heldRecord(w.Kind, w.Key)
		name := fmt.Sprintf("%s %s", w.Kind, w.Key)
		switch {
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

// heldRecord is what the target was read to hold of a record that the component writes.
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

// Held reports whether the target holds any record that the component is about, be it that
// it is written or that it is to go. Of groups by content that failed it is not known.
func (c *Component) Held() bool {
	if !c.ByContent() {
		return len(c.held) > 0
	}
	return slices.ContainsFunc(c.Write.Writes, func(w record.Write) bool {
		t := c.x.targets[ref{w.Kind, w.Key}]
		return t != nil && t.live
	})
}

// Members lists the source records that the groups of the component consist of, or the
// group by name if it has any.
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

// Bytes is what the source records have that the groups of the component consist of.
func (c *Component) Bytes() (n int) {
	for _, g := range c.groups {
		for _, r := range g.src {
			n += len(r.Doc)
		}
	}
	return n
}

// Left are members, one of each group that the component writes and that no unit of it
// belongs to: a unit has moved away from there, or was deleted. Nobody compares these groups
// again for the sake of what has changed, unless it is by them.
func (c *Component) Left() []GroupID {
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

// Source is Difference.Source of a unit of the component, or of its group by name: what the
// source holds, and what others hold of a group whose every change writes the unit as well.
// It depends on nothing else, and not on which units are resolved together: a unit that was
// never written, and is taken for one that somebody else's change will write, is lost.
func (c *Component) Source(id GroupID) uint64 {
	if !c.ByContent() {
		return SourceState(c.src)
	}
	u, _ := unitOf(id.Name)
	var rs []record.Record
	in := ""
	if t := c.x.targets[u.ref]; u.target && t != nil {
		in = t.group
	}
	if m := c.x.members[u.ref]; !u.target && m != nil {
		rs = append(rs, record.Record{Kind: m.kind, Key: m.key, Doc: m.rec.Doc})
		// Of a group that it waits for, or has moved to, others are written without it.
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

// Blame is the source record that stands for a unit of the component where it is not as it
// should be: one that failed, or any other. A target record that no group of the component
// lists or makes stands for itself: a reader of source records does not meet it.
func (c *Component) Blame(id GroupID) GroupID {
	u, ok := unitOf(id.Name)
	if !c.ByContent() || !ok || !u.target || !c.knows(u.ref) {
		return id
	}
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

// knows reports whether a group of the component lists a target record, or makes it.
func (c *Component) knows(t ref) bool {
	return slices.ContainsFunc(c.groups, func(g *groupState) bool {
		return slices.Contains(g.family.targets, t) ||
			slices.ContainsFunc(g.out, func(r record.Record) bool { return r.Kind == t.kind && r.Key == t.key })
	})
}

// Rest are the units that can be migrated without those that failed.
func (c *Component) Rest() []GroupID {
	return slices.DeleteFunc(slices.Clone(c.Units), func(id GroupID) bool {
		return slices.ContainsFunc(c.Failed, func(f Failure) bool { return f.Unit == id })
	})
}

// Refuse turns a component whose write the database refused into one that failed. Where
// records move, they are what was refused, as far as anybody can tell.
func (c *Component) Refuse(err error) {
	if !c.ByContent() {
		c.Write, c.InSync, c.Failed = record.GroupWrite{}, false, []Failure{{c.Units[0], err}}
		return
	}
	var moving []*memberState
	for _, m := range c.units {
		if len(m.named()) > 1 {
			moving = append(moving, m)
		}
	}
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

// components cuts what was resolved into parts that have nothing to do with each other.
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
	// Who makes a target record, who lists it and whom its own entry names are written
	// together, as is a member with all who list it. Lists and entries that were read at
	// different times may name more than one.
	claims := map[ref]string{}
	claim := func(t ref, name string) {
		for _, other := range []string{claims[t], x.targets[t].group} {
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
	for _, root := range slices.Sorted(maps.Keys(parts)) {
		c := parts[root]
		c.build()
		out = append(out, *c)
	}
	return out
}

// sortedStates makes what is written, and reported, independent of the order of a map.
func sortedStates[S any](states map[ref]S) []S {
	out := make([]S, 0, len(states))
	for _, r := range slices.SortedFunc(maps.Keys(states), ref.compare) {
		out = append(out, states[r])
	}
	return out
}
