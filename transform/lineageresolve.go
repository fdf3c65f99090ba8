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
	// maxMembers limits the source records of a group by content, because each change of one record
	// reads all of them. A backend may write less at once; it returns an error then.
	maxMembers = 10_000
	// maxReadAtOnce limits the members read for units that were requested together. It does not
	// count the largest group, because splitting the request would not make that one smaller.
	maxReadAtOnce = 5_000
	// maxRounds limits how often a read may lead to more parts of a component.
	maxRounds = 50
)

var (
	errTooMany  = errors.New("the groups have too many members to be read together")
	errChanging = errors.New("groups keep changing while they are read")
)

// Resolver computes the state of groups and the writes that they need. For a group by name it reads
// both sides. For units it also reads the groups that lineage and content name, and the other
// records of these groups.
type Resolver struct {
	Direction      Direction
	Source, Target record.Reader
	From, To       View // of the source, and of the target
	// Epoch is the direction epoch. Versions in guards of earlier epochs cannot be compared with
	// today's.
	Epoch uint64
	// Compare reads the target of every group, so that InSync is known. Without it, the resolver
	// reads the target of a group by name only if the write depends on it.
	Compare bool
	// Apart holds units that are known to fail. Other members of the group that they wait for are
	// resolved without them.
	Apart map[GroupID]bool
}

// Resolve reads the components of groups. All groups by name are read in one snapshot of the
// source. All units of one spec are read in one snapshot too. left holds the units that one read
// had no room for; resolve them after the others. If groups by name are too large for one read, the
// error is record.ErrTooLarge, which Each handles.
func (r Resolver) Resolve(ctx context.Context, ids []GroupID) (cs []Component, left []GroupID, err error) {
	named, units := Split(r.Direction, ids)
	if len(named) > 0 {
		if cs, err = r.named(ctx, named); err != nil {
			return nil, ids, err
		}
	}
	// Lineage is a kind of one spec, so resolve the units spec by spec.
	bySpec := map[int][]GroupID{}
	for _, id := range units {
		bySpec[id.Spec] = append(bySpec[id.Spec], id)
	}
	for _, spec := range slices.Sorted(maps.Keys(bySpec)) {
		units := bySpec[spec]
		for {
			x := newResolution(r, spec, units)
			err := x.readAll(ctx)
			// Retry with half of the units. One unit alone cannot be split.
			if (errors.Is(err, errTooMany) || errors.Is(err, record.ErrTooLarge)) && len(units) > 1 {
				half := len(units) / 2
				left = append(left, units[half:]...)
				units = units[:half]
				continue
			}
			if errors.Is(err, record.ErrTooLarge) {
				// One unit alone is too large: report it as failed, so that the caller parks it.
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

// resolution is the read of one spec's units. It reads each lineage entry once, at any snapshot of
// the target, because the write expects all of them to be unchanged. The write also expects entries
// that stay as they are if it depends on them. An entry that was read before its record moved may
// contradict a list that was read afterwards. If more source records turn out to belong to the
// units, it reads all of them again in one snapshot.
type resolution struct {
	Resolver
	spec    int
	lineage string
	alone   bool           // only one unit was requested: reads go up to GroupBytes
	version record.Version // of the source snapshot
	least   record.Version // the source snapshot must not be older

	members map[ref]*memberState
	groups  map[string]*groupState
	targets map[ref]*targetState
	// content maps a group to the members whose content names it.
	content map[string][]*memberState
}

// memberState is the known state of a source record.
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
	content string // the group that its content names; empty if the record is absent or err is set
	err     error
}

// groupState is the known state of a group that any record names or named.
type groupState struct {
	name   string
	direct bool // a unit names it, so its waiting records are resolved too
	known  bool
	family family
	guard  record.Guard // of the entry

	transformed bool
	adopted     map[ref]bool // records that the target held for no group or another one
	src, out    []record.Record
	err         error
}

// targetState is the known state of a target record.
type targetState struct {
	ref
	unit  bool
	known bool
	group string       // the group of its entry, empty if it has none
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
		// Not a unit's name. There is nothing to resolve.
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

// readAll reads until the component is complete.
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

// named returns the groups that a member belongs to, by lineage or by content.
func (m *memberState) named() []string {
	var names []string
	for _, n := range []string{m.descent.group, m.descent.waits, m.content} {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// derive adds everything that the last read leads to: the groups of units, the records that wait
// for those groups, and the target records of groups.
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
			// Targets have to be read even if the group makes others: the rest must be deleted.
			x.target(t)
		}
		if g.tooLarge() {
			continue
		}
		// Count all members read, to refuse a request that would need too much memory.
		members += len(g.family.members)
		largest = max(largest, len(g.family.members))
		for _, r := range g.family.members {
			x.member(r)
		}
		// A waiting record may fit now. It becomes a unit, unless it is known to fail.
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

// transform transforms the dirty groups. It returns false if that leads to groups or records that
// are not read yet.
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
			// A group that is too large fails anyway, so do not read its members.
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
				// The group makes a record that is not read yet. Its guard is needed for the write.
				if !t.known {
					complete = false
					continue
				}
				// A target record is part of the complement whichever group held it. So transform
				// this group again with the record.
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

// complete reports whether a group's members are fully read. It makes deleted members units,
// because an inherited list that names them gets no other correction. It leaves moved members to
// their own change, unless another group lists them already.
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
			// The member's content names another group. Only its own entry shows which group lists
			// it.
			m.look, ok = true, false
		}
	}
	return ok
}

// elsewhere reports whether a member's own entry names another group than g.
func (m *memberState) elsewhere(g *groupState) bool { return m.known && m.descent.group != g.name }

func (x *resolution) needsHave(g *groupState) bool {
	return x.Direction.NeedsHave(GroupID{x.spec, g.name})
}

// dirty returns the groups that units name, and the groups that hold target records which these
// groups now make.
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
	// Holders of made records are dirty too, and may make further records.
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

// holders returns the other groups that hold a target record which g makes.
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
		// Skip a record of another group that moved here in the meantime. Its own change migrates
		// it and takes it out of the other group.
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
