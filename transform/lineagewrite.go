package transform

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// build computes the component's write, or the failures that prevent it.
func (c *Component) build() {
	failedUnits, failedGroups := map[*memberState]error{}, map[string]error{}
	for _, m := range c.units {
		if m.err != nil {
			failedUnits[m] = m.err
		}
	}
	for _, g := range c.groups {
		if g.err != nil {
			failedGroups[g.name] = g.err
		}
	}
	// Collisions fail groups as well, so find them before deciding.
	makers := c.collide(failedGroups)
	if len(failedUnits)+len(failedGroups) > 0 {
		c.fail(failedUnits, failedGroups, nil)
		return
	}
	c.write(makers)
}

// made is a target record and the group that makes it.
type made struct {
	by  *groupState
	rec record.Record
}

// collide finds target records that two groups make. The present holder keeps such a record; the
// other group fails.
func (c *Component) collide(failed map[string]error) map[ref]made {
	makers := map[ref]made{}
	for _, g := range c.groups {
		for _, r := range g.out {
			to := ref{r.Kind, r.Key}
			other, taken := makers[to]
			if !taken {
				makers[to] = made{g, r}
				continue
			}
			keeps, loses := other.by, g
			// Keeping the holder is stable: the other order would exchange the record between two
			// groups forever.
			if c.x.targets[to].group == g.name {
				keeps, loses = g, other.by
				makers[to] = made{g, r}
			}
			failed[loses.name] = fmt.Errorf("group %s makes %s %s, and so does group %s: a record can be made of one group only",
				ShowGroup(loses.name), r.Kind, r.Key, ShowGroup(keeps.name))
		}
	}
	return makers
}

// fail marks units as failed: the given ones, and all units of the given groups. Without either, or
// if a failed group has no requested unit, it marks all units.
func (c *Component) fail(units map[*memberState]error, groups map[string]error, all error) {
	c.Failed, c.InSync = nil, false
	blame := func(of []string) error {
		for _, n := range of {
			if err := groups[n]; err != nil {
				return err
			}
		}
		return all
	}
	var failed []*memberState
	add := func(err error, everybody bool) {
		for _, m := range c.units {
			why := units[m]
			if why == nil {
				why = blame(m.named())
			}
			if why == nil && everybody {
				why = err
			}
			if why != nil {
				failed = append(failed, m)
				c.Failed = append(c.Failed, Failure{unit{ref: m.ref}.id(c.x.spec), why})
			}
		}
		for _, t := range c.targets {
			why := blame([]string{t.group})
			if why == nil && everybody {
				why = err
			}
			if why != nil {
				c.Failed = append(c.Failed, Failure{unit{t.ref, true}.id(c.x.spec), why})
			}
		}
	}
	// No unit names a failed group: it was reached through a target record. All units then share
	// its error, or the component would count as migrated.
	if add(nil, false); len(c.Failed) == 0 {
		first := slices.Min(slices.Collect(maps.Keys(groups)))
		add(groups[first], true)
	}
	c.wait(failed)
}

// wait records for each failed unit which group its content names. Then any controller that
// migrates that group later takes the unit along. Nothing else changes.
func (c *Component) wait(failed []*memberState) {
	w := c.newWrite()
	waiting := map[string][]ref{}
	of := func(name string) *groupState { return c.x.groups[name] }
	list := func(name string) []ref {
		if _, ok := waiting[name]; !ok {
			waiting[name] = slices.Clone(of(name).family.waiting)
		}
		return waiting[name]
	}
	for _, m := range failed {
		want := m.content
		// No waiting in the unit's own group, nor in a group that cannot be migrated anyway.
		if want == m.descent.group || want != "" && of(want).tooLarge() {
			want = ""
		}
		had := m.descent.waits
		if want == had {
			continue
		}
		// The unit no longer waits for that group.
		if had != "" {
			waiting[had] = slices.DeleteFunc(list(had), func(r ref) bool { return r == m.ref })
		}
		if want != "" {
			waiting[want] = append(list(want), m.ref)
		}
		w.add(c.x.lineage, memberKey(m.ref), descent{m.descent.group, want}.doc(m.ref), m.guard)
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		g := of(name)
		f := g.family
		f.waiting = waiting[name]
		slices.SortFunc(f.waiting, ref.compare)
		w.add(c.x.lineage, groupKey(name), f.doc(name), g.guard)
	}
	c.Write = w.done()
}

// write computes the write that brings the target to the members' state at the snapshot.
func (c *Component) write(makers map[ref]made) {
	c.InSync = true
	w := c.newWrite()
	was := map[ref]bool{}
	for _, t := range c.targets {
		was[t.ref] = true
	}
	// Groups first: their new entries decide which records stay.
	own := map[string]bool{}
	for _, g := range c.groups {
		own[g.name] = true
		for _, r := range g.family.targets {
			was[r] = true
		}
		now := c.familyOf(g)
		c.InSync = c.InSync && now.equal(g.family)
		w.add(c.x.lineage, groupKey(g.name), now.doc(g.name), g.guard)
	}
	for _, m := range c.disowned() {
		w.add(c.x.lineage, memberKey(m.ref), m.descent.doc(m.ref), m.guard)
	}
	for _, m := range c.units {
		now := descent{group: m.content}
		c.InSync = c.InSync && now == m.descent
		// The entry no longer waits: the unit is in the group of its content.
		w.add(c.x.lineage, memberKey(m.ref), now.doc(m.ref), m.guard)
	}
	for _, r := range slices.SortedFunc(maps.Keys(makers), ref.compare) {
		m, t := makers[r], c.x.targets[r]
		c.InSync = c.InSync && t.live && t.group == m.by.name && t.rec.Err == nil && bytes.Equal(t.rec.Doc, m.rec.Doc)
		w.add(c.x.lineage, targetKey(r), targetDoc(r, m.by.name), t.guard)
		// Record and entry in one transaction. One without the other would make lineage wrong.
		w.add(r.kind, r.key, m.rec.Doc, t.rec.Guard)
	}
	// Delete records that a group listed or a unit names and that no group makes now.
	for _, r := range slices.SortedFunc(maps.Keys(was), ref.compare) {
		t := c.x.targets[r]
		if _, stays := makers[r]; stays {
			continue
		}
		if t.group != "" && !own[t.group] {
			// Its entry names a group outside the component. Leave the record to that group, and
			// expect the entry to be unchanged.
			c.InSync = false
			w.add(c.x.lineage, targetKey(r), targetDoc(r, t.group), t.guard)
			continue
		}
		c.InSync = c.InSync && !t.live && t.group == ""
		w.add(c.x.lineage, targetKey(r), nil, t.guard)
		w.add(r.kind, r.key, nil, t.rec.Guard)
	}
	c.Write = w.done()
}

// disowned returns listed members whose own entries name other groups, so that these groups drop
// them. Their entries are written unchanged, with the expectation of their guards. If a list was
// read after its member came or came back, the expectation fails. Otherwise the write would leave
// the member in no list at all.
func (c *Component) disowned() []*memberState {
	found := map[ref]*memberState{}
	for _, g := range c.groups {
		for _, r := range g.family.members {
			if m := c.x.members[r]; m != nil && !m.unit && m.elsewhere(g) {
				found[r] = m
			}
		}
	}
	return sortedStates(found)
}

// familyOf computes the new entry of a group.
func (c *Component) familyOf(g *groupState) family {
	var f family
	for _, r := range g.family.members {
		// Units move by their content below. Members that another group lists are dropped here.
		if m := c.x.members[r]; !m.unit && !m.elsewhere(g) {
			f.members = append(f.members, r)
		}
	}
	for _, m := range c.x.content[g.name] {
		if m.unit {
			f.members = append(f.members, m.ref)
		}
	}
	for _, r := range g.family.waiting {
		// A unit that is written here waits no longer.
		if m := c.x.members[r]; m == nil || !m.unit {
			f.waiting = append(f.waiting, r)
		}
	}
	for _, r := range g.out {
		f.targets = append(f.targets, ref{r.Kind, r.Key})
	}
	for _, list := range [][]ref{f.members, f.waiting, f.targets} {
		slices.SortFunc(list, ref.compare)
	}
	return f
}

// groupWriter collects the writes of a component. Each write expects the guard that was read.
type groupWriter struct {
	c    *Component
	w    record.GroupWrite
	last record.Version // the latest version of this epoch among the guards read
}

func (c *Component) newWrite() *groupWriter {
	names := make([]string, len(c.groups))
	for i, g := range c.groups {
		names[i] = ShowGroup(g.name)
	}
	return &groupWriter{c: c, w: record.GroupWrite{Group: strings.Join(names, ", ")}}
}

func (w *groupWriter) add(kind string, key record.Key, doc []byte, read record.Guard) {
	w.w.Writes = append(w.w.Writes, record.Write{Kind: kind, Key: key, Doc: doc, Expect: &read})
	// Guards of earlier epochs do not order anything in this one.
	if read.Epoch == w.c.x.Epoch && read.Version.Compare(w.last) > 0 {
		w.last = read.Version
	}
}

// done sets the version of the write. If the target already holds a write of the same snapshot, the
// version is the next one: more became known of the group, and the source did not change.
func (w *groupWriter) done() record.GroupWrite {
	w.w.Version = w.c.Version
	if w.last.Compare(w.w.Version) >= 0 {
		w.w.Version = w.last.Next()
	}
	return w.w
}
