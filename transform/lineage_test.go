package transform_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

type ctx = context.Context

// TestGroupsByContent follows a group through everything that can happen to it.
func TestGroupsByContent(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	step := func(ms ...record.Mutation) {
		t.Helper()
		ids, at := w.write(t.Context(), ms...)
		w.bring(t.Context(), ids, at)
		w.exact(t.Context())
		if len(w.parked) > 0 {
			t.Fatalf("parked: %v", w.parked)
		}
	}
	step(set("people1", "ann", "red", "s1", 1))
	step(set("people1", "bob", "red", "s2", 2), set("desks1", "oak", "blue", "", 3))
	step(set("teams1", "red", "", "", 9)) // the group is the key
	step(set("people1", "ann", "blue", "s1", 1))
	step(set("people1", "ann", "blue", "s3", 2))
	step(set("people1", "ann", "red", "s3", 2), set("people1", "bob", "blue", "s2", 2)) // swap teams
	step(set("people1", "ann", "red", "s2", 2), set("people1", "bob", "blue", "s3", 2)) // swap seats
	step(del("teams1", "red"), del("people1", "ann"))
	step(del("people1", "bob"), del("desks1", "oak"))
	if have, _ := w.held(t.Context()); len(have) != 0 {
		t.Errorf("left: %v", have)
	}
	if w.linkedWrites == 0 {
		t.Error("no two groups were ever written together")
	}
}

// TestIdleSource: a source without writes has one snapshot, and a group that more and
// more members join of it is written each time.
func TestIdleSource(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	var units []transform.GroupID
	var last record.Version
	for i := range 20 {
		ids, at := w.write(t.Context(), set("people1", fmt.Sprint("p", i), "red", fmt.Sprint("s", i), i))
		units, last = append(units, ids...), at
	}
	for _, id := range units {
		w.bring(t.Context(), []transform.GroupID{id}, last)
	}
	w.exact(t.Context())
}

// TestCollision: what one group has made another one cannot make too, until it is free.
func TestCollision(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "s1", 1))
	w.bring(t.Context(), ids, at)
	bob, at := w.write(t.Context(), set("people1", "bob", "blue", "s1", 2))
	w.bring(t.Context(), bob, at)
	err := w.parked[bob[0]]
	if len(w.parked) != 1 || err == nil {
		t.Fatalf("parked: %v, want bob", w.parked)
	}
	for _, part := range []string{"red", "blue", "s1", "seats2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if have, lin := w.held(t.Context()); lin.madeOf["seats2/s1"] != "red" || have["teams2/blue"] != "" {
		t.Errorf("the loser was written: %v", lin)
	}
	w.consistent(t.Context())
	// Ann's seat is free before anybody was notified of it.
	_, at = w.write(t.Context(), set("people1", "ann", "red", "", 1))
	w.bring(t.Context(), bob, at)
	w.exact(t.Context())
	if len(w.parked) != 0 {
		t.Errorf("parked: %v", w.parked)
	}
}

// TestSiblingsFindEachOther: members that cannot be transformed alone, migrated one by one,
// are complete in the end: a member that fails waits where the others look.
func TestSiblingsFindEachOther(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	bad, at := w.write(t.Context(), set("people1", "ann", "red", "", -1))
	w.bring(t.Context(), bad, at)
	other, at := w.write(t.Context(), set("people1", "bob", "red", "", 1))
	w.bring(t.Context(), other, at)
	if len(w.parked) != 2 {
		t.Fatalf("parked: %v, want all of a group that cannot be transformed", w.parked)
	}
	_, lin := w.held(t.Context())
	if fmt.Sprint(lin.waiting) != "map[red:[people1/ann people1/bob]]" || len(lin.members) != 0 {
		t.Errorf("lineage: %+v", lin)
	}
	w.consistent(t.Context())
	// Only ann changes; bob comes along.
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "", 1))
	w.bring(t.Context(), ids, at)
	w.exact(t.Context())
	if len(w.parked) != 0 {
		t.Errorf("parked: %v", w.parked)
	}
}

// TestFailureStaysAlone: what cannot move to its new group neither leaves the old one by
// itself nor holds up those who stay there.
func TestFailureStaysAlone(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "", 1), set("people1", "bob", "red", "", 1), set("people1", "cy", "green", "", 1))
	w.bring(t.Context(), ids, at)
	ids, at = w.write(t.Context(), set("people1", "ann", "green", "", -1), set("people1", "bob", "red", "", 2))
	w.bring(t.Context(), ids, at)
	if len(w.parked) != 1 || w.parked[ids[0]] == nil {
		t.Errorf("parked: %v, want ann", w.parked)
	}
	have, lin := w.held(t.Context())
	if !strings.Contains(have["teams2/red"], "bob=2") || !strings.Contains(have["teams2/green"], "cy=1") || strings.Contains(have["teams2/green"], "ann") {
		t.Errorf("records: %q", have)
	}
	if lin.groupOf["people1/ann"] != "red" || lin.waits["people1/ann"] != "green" {
		t.Errorf("lineage: %+v", lin)
	}
	w.consistent(t.Context())
	// No team at all, and a content function that panics: parked, and nobody waits for it.
	for i, team := range []string{"", "panic"} {
		ids, at = w.write(t.Context(), set("people1", "ann", team, "", i))
		w.bring(t.Context(), ids, at)
		if _, lin := w.held(t.Context()); w.parked[ids[0]] == nil || len(lin.waits) != 0 {
			t.Errorf("team %q: parked %v, lineage %+v", team, w.parked, lin)
		}
		w.consistent(t.Context())
	}
	ids, at = w.write(t.Context(), set("people1", "ann", "blue", "", 3))
	w.bring(t.Context(), ids, at)
	w.exact(t.Context())
}

// TestOvertaken: what was read before another wrote is not written after it, whichever of
// the entries it was that the other changed.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before []record.Mutation
		first  record.Mutation // what the slow one reads, which writes last
		then   record.Mutation // what the other one reads and writes meanwhile, at an older snapshot
	}{
		"both join a group":            {first: set("people1", "ann", loose, "s1", 1), then: set("people1", "bob", loose, "s2", 1)},
		"both make one record":         {first: set("people1", "ann", "red", "s1", 1), then: set("people1", "bob", loose, "s1", 1)},
		"one leaves, one joins":        {before: []record.Mutation{set("people1", "bob", loose, "s2", 1)}, first: set("people1", "ann", loose, "s1", 1), then: set("people1", "bob", "red", "s2", 1)},
		"one deleted, one joins":       {before: []record.Mutation{set("people1", "bob", loose, "s2", 1)}, first: set("people1", "ann", loose, "s1", 1), then: del("people1", "bob")},
		"one frees what another makes": {before: []record.Mutation{set("people1", "bob", loose, "s1", 1)}, first: set("people1", "ann", "red", "s1", 1), then: set("people1", "bob", loose, "s2", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTeams(t.Context(), t)
			if len(tt.before) > 0 {
				ids, at := w.write(t.Context(), tt.before...)
				w.bring(t.Context(), ids, at)
			}
			// The other one's snapshot has its own change and not yet the slow one's.
			others, at := w.write(t.Context(), tt.then)
			meanwhile, _ := w.resolve(t.Context(), others, at, nil)
			slow, at := w.write(t.Context(), tt.first)
			late, _ := w.resolve(t.Context(), slow, at, nil)
			if a, b := meanwhile[0].Version, late[0].Version; a.Compare(b) >= 0 {
				t.Fatalf("snapshots %s and %s: the guard alone would show it", a, b)
			}
			if again, _ := w.apply(t.Context(), meanwhile); len(again) > 0 {
				t.Fatalf("to be resolved again: %v", again)
			}
			again, _ := w.apply(t.Context(), late)
			w.consistent(t.Context())
			if len(again) == 0 && len(late[0].Failed) == 0 {
				t.Error("it was written")
			}
		})
	}
}

// TestTornReading: the entries of a resolution are read one after the other. What went from
// one group to another in between is the first one's by its own entry and the other one's by
// that group's list; who believes both leaves it in neither.
func TestTornReading(t *testing.T) {
	t.Parallel()
	type ms = []record.Mutation
	// Before the slow one's reading of that number others write, bring that over, and write
	// once more.
	type meanwhile struct {
		reading        int
		brought, later ms
	}
	for name, tt := range map[string]struct {
		before, slow ms
		meanwhile    []meanwhile
	}{
		"a target record between two groups": {
			before: ms{set("people1", "ann", "red", "s1", 1), set("people1", "bob", "green", "", 1)},
			slow:   ms{set("people1", "ann", "red", "s1", 2), set("people1", "cy", "green", "", 1)},
			// After the entries of units, of their groups, and of what these made; before the source.
			meanwhile: []meanwhile{{4,
				ms{set("people1", "ann", "red", "", 3), set("people1", "bob", "green", "s1", 2)}, ms{set("people1", "bob", "green", "", 3)},
			}},
		},
		"a target record, and its first group is no longer anybody's": {
			before: ms{set("people1", "ann", "red", "s1", 1), set("people1", "bob", "green", "", 1)},
			slow:   ms{set("people1", "cy", "red", "", 1)},
			// After the entry of cy, the source, and the entries of red and what it made.
			meanwhile: []meanwhile{{5,
				ms{set("people1", "ann", "red", "", 3), set("people1", "bob", "green", "s1", 2)},
				ms{set("people1", "bob", "green", "", 3), set("people1", "cy", "green", "", 1)},
			}},
		},
		"a member": {
			before: ms{set("people1", "ann", "red", "", 1), set("people1", "bob", "red", "", 1), set("people1", "eve", "blue", "", 1)},
			slow:   ms{set("people1", "ann", "red", "", 2), set("people1", "cy", "blue", "", 1), set("people1", "bob", "green", "", 2)},
			// After the entries of ann and cy, of red and its records, the source, and the entries
			// of blue and of bob, who has left red.
			meanwhile: []meanwhile{{6, ms{set("people1", "bob", "green", "", 3)}, ms{set("people1", "cy", "green", "", 1)}}},
		},
		"one that waits": {
			before:    ms{set("people1", "ann", "red", "", -1), set("people1", "bob", "green", "", 1)},
			slow:      ms{set("people1", "ann", "red", "", -2), set("people1", "cy", "green", "", 1)},
			meanwhile: []meanwhile{{3, ms{set("people1", "ann", "green", "", -3)}, ms{set("people1", "ann", "blue", "", 1)}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTeams(t.Context(), t)
			ids, at := w.write(t.Context(), tt.before...)
			w.bring(t.Context(), ids, at)
			units, at := w.write(t.Context(), tt.slow...)
			late, last, reading := units, at, 0
			w.between = func() record.Version {
				reading++
				for _, m := range tt.meanwhile {
					if m.reading != reading {
						continue
					}
					ids, at := w.write(t.Context(), m.brought...)
					w.bring(t.Context(), ids, at)
					w.consistent(t.Context())
					ids, last = w.write(t.Context(), m.later...)
					late = append(late, ids...)
				}
				return last
			}
			cs, _ := w.resolve(t.Context(), units[:min(2, len(units))], at, nil)
			w.between = nil
			w.apply(t.Context(), cs)
			w.consistent(t.Context())
			w.bring(t.Context(), late, last)
			w.bring(t.Context(), slices.Collect(maps.Keys(w.parked)), last)
			w.exact(t.Context())
		})
	}
}

// TestWaitingForAGoodGroup: what waits for a group may be held up by the one that it has
// to leave. That is nothing to those who are in the group that it waits for.
func TestWaitingForAGoodGroup(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "", 1), set("people1", "bob", "red", "", 1), set("people1", "cy", "green", "", 1))
	w.bring(t.Context(), ids, at)
	bad, at := w.write(t.Context(), set("people1", "bob", "red", "", -1))
	w.bring(t.Context(), bad, at)
	moved, at := w.write(t.Context(), set("people1", "ann", "green", "", 1))
	w.bring(t.Context(), moved, at)
	if _, lin := w.held(t.Context()); lin.waits["people1/ann"] != "green" || lin.groupOf["people1/ann"] != "red" {
		t.Fatalf("lineage: %+v", lin)
	}
	ids, at = w.write(t.Context(), set("people1", "cy", "green", "", 2))
	w.bring(t.Context(), ids, at)
	if have, _ := w.held(t.Context()); !strings.Contains(have["teams2/green"], "cy=2") || len(w.parked) != 2 {
		t.Errorf("green is %q, parked are %v", have["teams2/green"], w.parked)
	}
	ids, at = w.write(t.Context(), set("people1", "bob", "red", "", 3))
	w.bring(t.Context(), append(ids, moved...), at)
	w.exact(t.Context())
}

// TestComplementMoves: what only the target holds of a record survives when the record
// becomes another group's.
func TestComplementMoves(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "s1", 1), set("people1", "bob", "blue", "", 1))
	w.bring(t.Context(), ids, at)
	note := func() string {
		t.Helper()
		r, err := w.dst.Get(t.Context(), w.dstToks["seats2"], record.StringKey("s1"))
		if err != nil {
			t.Fatal(err)
		}
		return decoded[seatDoc](r).Note
	}
	noted := record.Mutation{Kind: "seats2", Key: record.StringKey("s1"), Doc: marshal(seatDoc{"s1", "red", "ann", "by the window"})}
	if err := w.dst.Write(t.Context(), w.dstToks, []record.Mutation{noted}); err != nil {
		t.Fatal(err)
	}
	for _, team := range []string{"red", "blue", "green"} {
		ids, at := w.write(t.Context(), set("people1", "ann", team, "s1", 2))
		w.bring(t.Context(), ids, at)
		if note() != "by the window" {
			t.Errorf("the note is lost in team %s", team)
		}
	}
}

// TestForeignTarget: a record of the target that no group makes is found to be so, and
// removed; one that a group makes is not touched.
func TestForeignTarget(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	ids, at := w.write(t.Context(), set("people1", "ann", "red", "s1", 1))
	w.bring(t.Context(), ids, at)
	foreign := record.Mutation{Kind: "seats2", Key: record.StringKey("s9"), Doc: marshal(seatDoc{ID: "s9", Team: "red"})}
	if err := w.dst.Write(t.Context(), w.dstToks, []record.Mutation{foreign}); err != nil {
		t.Fatal(err)
	}
	for seat, want := range map[string]bool{"s1": true, "s9": false} {
		id, ok, err := w.dir.GroupOfTarget("seats2", record.StringKey(seat))
		if err != nil || !ok {
			t.Fatalf("%t, %v", ok, err)
		}
		cs, _ := w.resolve(t.Context(), []transform.GroupID{id}, at, nil)
		if len(cs) != 1 || cs[0].InSync != want {
			t.Errorf("%s: %d components, in sync %t, want %t", seat, len(cs), cs[0].InSync, want)
		}
		w.bring(t.Context(), []transform.GroupID{id}, at)
	}
	w.exact(t.Context())
	// Without a group, and asked for together with the record that makes it somebody's.
	foreign = record.Mutation{Kind: "seats2", Key: record.StringKey("s5"), Doc: marshal(seatDoc{ID: "s5", Team: "red"})}
	if err := w.dst.Write(t.Context(), w.dstToks, []record.Mutation{foreign}); err != nil {
		t.Fatal(err)
	}
	ids, at = w.write(t.Context(), set("people1", "bob", "red", "s5", 1))
	id, _, _ := w.dir.GroupOfTarget("seats2", record.StringKey("s5"))
	if cs, _ := w.resolve(t.Context(), append(ids, id), at, nil); len(cs) != 1 {
		t.Errorf("%d components write one record", len(cs))
	}
	w.bring(t.Context(), append(ids, id), at)
	w.exact(t.Context())
	kind := transform.LineageKind("teams", "v1", "v2")
	if _, ok, err := w.dir.GroupOfTarget(kind, record.StringKey("g/=red")); ok || err != nil {
		t.Errorf("an entry of lineage is taken for a record: %v", err)
	}
}

// TestTooLarge: a group with more members than can be migrated as one returns an error, and
// is not read.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := newTeams(t.Context(), t)
	const members = 10_001
	var ms []record.Mutation
	for i := range members {
		ms = append(ms, set("people1", fmt.Sprintf("p%05d", i), "red", "", i))
	}
	ids, at := w.write(t.Context(), ms...)
	for chunk := range slices.Chunk(ids, 2000) {
		w.bring(t.Context(), chunk, at)
	}
	more, at := w.write(t.Context(), set("people1", "more", "red", "", 1))
	w.bring(t.Context(), more, at)
	if err := w.parked[more[0]]; err == nil || !strings.Contains(err.Error(), "red has 10001 members, at most 10000") {
		t.Errorf("parked: %v", err)
	}
	other, at := w.write(t.Context(), set("people1", "p00007", "blue", "", 1))
	w.bring(t.Context(), other, at)
	if err := w.parked[other[0]]; err == nil {
		t.Error("a member left a group that cannot be written")
	}
	w.consistent(t.Context())
}

// TestOutputOfAnotherGroup: a record that names another group than the one it was made
// of would be in that one in the reverse direction.
func TestOutputOfAnotherGroup(t *testing.T) {
	t.Parallel()
	r := transform.NewRegistry("test")
	wrong := func(transform.Group, transform.Group) ([]record.Record, error) {
		return []record.Record{{Kind: "new", Key: record.StringKey("a"), Doc: marshal(seatDoc{ID: "a", Team: "blue"})}}, nil
	}
	byTeam := func(r record.Record) (string, error) { return decoded[seatDoc](r).Team, nil }
	err := r.Add("v1", "v2", transform.Spec{
		Name: "s", Up: wrong, Down: wrong, Reversal: transform.ReversalNone,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "old"}, Content: byTeam}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "new"}, Content: byTeam}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	src := transform.Group{Name: "red", Records: []record.Record{{Kind: "old", Key: record.StringKey("a"), Doc: marshal(seatDoc{ID: "a", Team: "red"})}}}
	if _, err := up.Transform(transform.GroupID{Name: "red"}, src, transform.Group{}); err == nil || !strings.Contains(record.Revealed(err), "blue") || strings.Contains(err.Error(), "blue") {
		t.Errorf("a record of group blue was made of group red: %v", err)
	}
	if _, err := up.Transform(transform.GroupID{Name: "blue"}, src, transform.Group{}); err != nil {
		t.Error(err)
	}
}

// TestSpecsByContent: what a registry refuses.
func TestSpecsByContent(t *testing.T) {
	t.Parallel()
	none := func(transform.Group, transform.Group) ([]record.Record, error) { return nil, nil }
	content := func(record.Record) (string, error) { return "g", nil }
	groupOf := func(record.Key) (string, error) { return "g", nil }
	sel := func(string) record.Selector { return record.Selector{} }
	for name, tt := range map[string]struct {
		kind   transform.GroupedKind
		anchor func(string) (string, record.Key)
		want   string
	}{
		"content":             {kind: transform.GroupedKind{Content: content}},
		"content and groupof": {kind: transform.GroupedKind{Content: content, GroupOf: groupOf, Select: sel}, want: "both Content and GroupOf"},
		"anchor":              {kind: transform.GroupedKind{Content: content}, anchor: func(string) (string, record.Key) { return "", "" }, want: "Anchor"},
		"reserved":            {kind: transform.GroupedKind{Content: content, KindSpec: record.KindSpec{Name: transform.LineageKind("x", "v1", "v2")}}, want: "are taken"},
	} {
		if tt.kind.Name == "" {
			tt.kind.Name = "old"
		}
		r := transform.NewRegistry("test")
		err := r.Add("v1", "v2", transform.Spec{
			Name: "s", Up: none, Down: none,
			Old: transform.Side{Kinds: []transform.GroupedKind{tt.kind}, Anchor: tt.anchor},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "new"}, GroupOf: groupOf, Select: sel}}},
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	kind := transform.LineageKind("a b/$c", "v1", "v2")
	if physical := record.PhysicalName(kind, 7); strings.ContainsAny(physical, " /$") {
		t.Errorf("%s is no name for a collection", physical)
	} else if back, seq, ok := record.KindOfPhysical(physical); !ok || back != kind || seq != 7 {
		t.Errorf("%s is read as %s %d %t", physical, back, seq, ok)
	}
}

// TestLineage is a state machine: clients create, change, move, swap and delete; appliers
// read at any time and write at any later one, or never; units are delivered twice. When
// all of it has come to rest, target and lineage are exactly those of the source.
func TestLineage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "move": m.move, "swap": m.swap, "delete": m.delete, "scatter": m.scatter,
			"read": m.read, "write": m.writeHeld, "crash": m.crash, "late": m.late,
			"": func(t *rapid.T) { m.w.t = t; m.w.consistent(m.ctx) },
		})
		m.rest(t)
	})
}
