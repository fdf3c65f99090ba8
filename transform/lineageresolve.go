package transform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

const (
	// maxMembers is how many source records a group by content may have. Each change of
	// one reads all of them. What a backend can write at once may be less; it returns an
	// error then.
	maxMembers = 10_000
	// maxReadAtOnce is how many members are read for units that were asked for together,
	// besides those of the largest group: fewer units would need those as well.
	maxReadAtOnce = 5_000
	// maxRounds bounds how often more is found to belong to a component.
	maxRounds = 50
)

var (
	errTooMany  = errors.New("the groups have too many members to be read together")
	errChanging = errors.New("groups keep changing while they are read")
)

// Resolver finds out what groups come to, and what has to be written for that. Of a group
// by name it reads what the two sides hold; of units also which groups they belong to, by
// their lineage and by their content, and who else does.
type Resolver struct {
	Direction      Direction
	Source, Target record.Reader
	From, To       View // of the source, and of the target
	// Epoch is the direction epoch: guards of earlier ones contain nothing about versions.
	Epoch uint64
	// Compare reads of every group what the target holds, so that InSync is known. Without it
	// groups by name are read there only where what is to be written depends on it.
	Compare bool
	// Apart are units that are known to fail, and must not hold up the others of a group
	// that they wait for.
	Apart map[GroupID]bool
}

// Resolve reads the components of groups: one of each group by name, all at one snapshot of
// the source, and those of units, all of one spec at one snapshot. left are units that were
// too many for one reading; they are to be resolved after the others. Groups by name that
// are too large for one reading are record.ErrTooLarge, as Each takes it.
func (r Resolver) Resolve(ctx context.Context, ids []GroupID) (cs []Component, left []GroupID, err error) {
	named, units := Split(r.Direction, ids)
	if len(named) > 0 {
		if cs, err = r.named(ctx, named); err != nil {
			return nil, ids, err
		}
	}
	bySpec := map[int][]GroupID{}
	for _, id := range units {
		bySpec[id.Spec] = append(bySpec[id.Spec], id)
	}
	for _, spec := range slices.Sorted(maps.Keys(bySpec)) {
		units := bySpec[spec]
		for {
			x := newResolution(r, spec, units)
			err := x.readAll(ctx)
			if (errors.Is(err, errTooMany) || errors.Is(err, record.ErrTooLarge)) && len(units) > 1 {
				half := len(units) / 2
				left = append(left, units[half:]...)
				units = units[:half]
				continue
			}
			if errors.Is(err, record.ErrTooLarge) {
				cs = append(cs, Component{
					Units: units, Failed: []Failure{{units[0], ErrLargeGroup}}, Version: r.From.NotBefore, x: x,
				})
				break
			}
			if err != nil {
				return nil, ids, fmt.Errorf("resolve %s: %w", x.lineage, err)
			}
			cs = append(cs, x.components()...)
			break
		}
	}
	return cs, left, nil
}

// resolution is the reading of one spec's units. Entries are read once, at whatever
// snapshots of the target: a write is refused unless all of them are still the same. That
// goes for entries that stay as they are, too, where what is written follows from them: one
// that was read before its record moved contradicts the list that was read after it.
// Source records are all read again, at one snapshot, when more of them belong to it.
type resolution struct {
	Resolver
	spec    int
	lineage string
	alone   bool           // one unit was asked for: what belongs to it is read up to GroupBytes
	version record.Version // of the source snapshot
	least   record.Version // the source must not be older

	members map[ref]*memberState
	groups  map[string]*groupState
	targets map[ref]*targetState
	// content holds the members that were read by the groups that they name.
	content map[string][]*memberState
}

// memberState is a source record.
type memberState struct {
	ref
	unit    bool // its own entry is read, and written
	look    bool // its own entry is read
	known   bool // its entry has been read
	descent descent
	guard   record.Guard // of the entry

	read    bool // at the source's snapshot
	rec     record.Record
	there   bool
	content string // the group that it names; empty if it is not there, or err
	err     error
}

// groupState is a group that any record names or named.
type groupState struct {
	name   string
	direct bool // a unit names it: what waits for it is resolved too
	known  bool
	family family
	guard  record.Guard // of the entry

	transformed bool
	adopted     map[ref]bool // records that the target held for no group, or for another one
	src, out    []record.Record
	err         error
}

// targetState is a target record.
type targetState struct {
	ref
	unit  bool
	known bool
	group string       // whose it is, empty if it has none
	guard record.Guard // of the entry
	rec   record.Record
	live  bool
}

func newResolution(r Resolver, spec int, ids []GroupID) *resolution {
	x := &resolution{
		Resolver: r, spec: spec, lineage: r.Direction.LineageKind(spec), least: r.From.NotBefore, alone: len(ids) == 1,
		members: map[ref]*memberState{}, groups: map[string]*groupState{}, targets: map[ref]*targetState{},
	}
	for _, id := range ids {
		switch u, ok := unitOf(id.Name); {
		case !ok:
		case u.target:
			x.target(u.ref).unit = true
		default:
			x.member(u.ref).unit = true
		}
	}
	return x
}

func (x *resolution) member(r ref) *memberState {
	m := x.members[r]
	if m == nil {
		m = &memberState{ref: r}
		x.members[r] = m
	}
	return m
}

func (x *resolution) group(name string) *groupState {
	g := x.groups[name]
	if g == nil {
		g = &groupState{name: name}
		x.groups[name] = g
	}
	return g
}

func (x *resolution) target(r ref) *targetState {
	t := x.targets[r]
	if t == nil {
		t = &targetState{ref: r}
		x.targets[r] = t
	}
	return t
}

// readAll reads until nothing more belongs to the units.
func (x *resolution) readAll(ctx context.Context) error {
	for range maxRounds {
		if err := x.readTarget(ctx); err != nil {
			return err
		}
		if err := x.readSource(ctx); err != nil {
			return err
		}
		if x.transform() {
			return nil
		}
	}
	return errChanging
}

// named are the groups that a unit belongs to, one way or another.
func (m *memberState) named() []string {
	var names []string
	for _, n := range []string{m.descent.group, m.descent.waits, m.content} {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// derive notes what follows from what was read: the groups of units, what waits for
// those, and the target records of groups.
func (x *resolution) derive() error {
	for _, m := range x.members {
		if m.unit && m.known {
			for _, n := range m.named() {
				x.group(n).direct = true
			}
		}
	}
	for _, t := range x.targets {
		if t.unit && t.group != "" {
			x.group(t.group).direct = true
		}
	}
	members, largest := 0, 0
	for _, g := range x.groups {
		if !g.known {
			continue
		}
		for _, t := range g.family.targets {
			x.target(t)
		}
		if g.tooLarge() {
			continue
		}
		members += len(g.family.members)
		largest = max(largest, len(g.family.members))
		for _, r := range g.family.members {
			x.member(r)
		}
		for _, r := range g.family.waiting {
			if g.direct && !x.Apart[unit{ref: r}.id(x.spec)] {
				x.member(r).unit = true
			}
		}
	}
	if members-largest > maxReadAtOnce {
		return errTooMany
	}
	return nil
}

func (g *groupState) tooLarge() bool {
	return len(g.family.members)+len(g.family.waiting) > maxMembers
}

// transform computes the groups that have to be written. It returns false when they name
// groups or target records that were not read yet.
func (x *resolution) transform() (complete bool) {
	for {
		dirty := x.dirty()
		again := false
		for _, name := range dirty {
			g := x.group(name)
			if !g.known {
				return false
			}
			if g.transformed {
				continue
			}
			if !g.tooLarge() && !x.complete(g) {
				return false
			}
			x.transformGroup(g)
			again = true
		}
		complete = true
		for _, name := range dirty {
			g := x.groups[name]
			for _, r := range g.out {
				t := x.target(ref{r.Kind, r.Key})
				if !t.known {
					complete = false
					continue
				}
				// What the target holds already is the complement, for whichever group it
				// was held.
				if x.needsHave(g) && t.live && t.group != g.name && !g.adopted[t.ref] {
					if g.adopted == nil {
						g.adopted = map[ref]bool{}
					}
					g.adopted[t.ref] = true
					g.transformed, again = false, true
				}
			}
		}
		if !complete || !again {
			return complete
		}
	}
}

// complete reports whether nothing more has to be read of a group's members. Those that
// are gone are resolved with it: what is left of them in an inherited list will not change
// again. Those that have moved are left to their own change, unless they are listed
// elsewhere already.
func (x *resolution) complete(g *groupState) bool {
	ok := true
	for _, r := range g.family.members {
		m := x.members[r]
		switch {
		case m == nil || !m.read:
			return false
		case m.unit || m.content == g.name:
		case !m.there && g.direct && !x.Apart[unit{ref: r}.id(x.spec)]:
			m.unit, ok = true, m.known && ok
		case !m.known:
			m.look, ok = true, false
		}
	}
	return ok
}

// elsewhere reports whether a member's own entry is known to name another group than g.
func (m *memberState) elsewhere(g *groupState) bool { return m.known && m.descent.group != g.name }

func (x *resolution) needsHave(g *groupState) bool {
	return x.Direction.NeedsHave(GroupID{x.spec, g.name})
}

// dirty lists the groups that units name, and those that hold what these groups make now.
func (x *resolution) dirty() []string {
	found := map[string]bool{}
	var queue []string
	add := func(n string) {
		if n != "" && !found[n] {
			found[n] = true
			queue = append(queue, n)
		}
	}
	for _, m := range x.members {
		if m.unit {
			for _, n := range m.named() {
				add(n)
			}
		}
	}
	for _, t := range x.targets {
		if t.unit {
			add(t.group)
		}
	}
	for len(queue) > 0 {
		g := x.groups[queue[0]]
		queue = queue[1:]
		if g == nil || !g.transformed {
			continue
		}
		for _, h := range x.holders(g) {
			add(h)
		}
	}
	names := slices.Sorted(maps.Keys(found))
	for _, n := range names {
		x.group(n)
	}
	return names
}

// holders are the other groups that hold what a group makes.
func (x *resolution) holders(g *groupState) (names []string) {
	for _, r := range g.out {
		if t := x.targets[ref{r.Kind, r.Key}]; t != nil && t.group != "" && t.group != g.name {
			names = append(names, t.group)
		}
	}
	return names
}

func (x *resolution) transformGroup(g *groupState) {
	g.transformed = true
	g.src, g.out, g.err = nil, nil, nil
	if g.tooLarge() {
		g.err = fmt.Errorf("group %s has %d members, at most %d can be migrated as one", ShowGroup(g.name),
			len(g.family.members)+len(g.family.waiting), maxMembers)
		return
	}
	for _, m := range x.content[g.name] {
		// A member of another group that has moved here meanwhile comes with its own change,
		// which takes it out of the other one.
		if m.unit || g.family.has(m.ref) {
			g.src = append(g.src, m.rec)
		}
	}
	if len(g.src) == 0 {
		return
	}
	SortRecords(g.src)
	have := Group{Name: g.name}
	if x.needsHave(g) {
		for _, r := range g.family.targets {
			if t := x.targets[r]; t.live && t.group == g.name {
				have.Records = append(have.Records, t.rec)
			}
		}
		for r := range g.adopted {
			have.Records = append(have.Records, x.targets[r].rec)
		}
		SortRecords(have.Records)
	}
	out, err := x.Direction.Transform(GroupID{x.spec, g.name}, Group{Name: g.name, Records: g.src}, have)
	if err != nil {
		g.err = fmt.Errorf("group %s: %w", ShowGroup(g.name), err)
		return
	}
	g.out = out
}
