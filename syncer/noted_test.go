package syncer

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	us "dbcontroller.dev/upgradestate"
)

// TestCounted: an application that deletes all the time costs a line a minute, and each delete is in
// the count of a line.
func TestCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{tallies: map[string]tally{}}
		lines, sum := 0, 0
		for range 601 {
			if n := e.counted("late deletes", 3); n > 0 {
				lines++
				sum += n
			}
			time.Sleep(time.Second) // of the bubble
		}
		if lines != 11 || sum != 1803 {
			t.Errorf("%d lines about %d deletes, want 11 about 1803", lines, sum)
		}
		if n := e.counted("foreign writes", 2); n != 2 {
			t.Errorf("the first of another sort is logged as %d, want 2", n)
		}
	})
}

// TestForeignWritesNameTheRemedy: the way back may wait for ever for an application that goes on
// deleting in the ended version, so its reason says how to end that.
func TestForeignWritesNameTheRemedy(t *testing.T) {
	t.Parallel()
	e := &Engine{Parts: Parts{Direction: fromV1ToV2{}}, record: us.Deployment{CurrentVersion: "v1"}}
	if said := e.keepOut(); said != "" {
		t.Errorf("without a switch it says %q", said)
	}
	e.record.LastSwitch = &us.Switch{From: "v2", To: "v1"}
	for _, want := range []string{"stop what still writes or deletes in v2", "take away its right"} {
		if said := e.keepOut(); !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}

// TestFencesAheadAfterARestart: a stream that begins between the fences of two kinds is behind the first
// one, and still before the second.
func TestFencesAheadAfterARestart(t *testing.T) {
	t.Parallel()
	at := func(v string) record.Position { return record.Position{Token: []byte(v)} }
	e := &Engine{}
	e.plan.Fences = map[string]SeenFence{"a": {Marker: "a.n1", After: at("5")}, "b": {Marker: "b.n1", After: at("7")}}
	for from, want := range map[string][]string{"4": {"a", "b"}, "5": {"a", "b"}, "6": {"b"}, "7": {"b"}, "8": nil} {
		if got := slices.Sorted(maps.Keys(e.fencesAhead(at(from)))); !slices.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", from, got, want)
		}
	}
}

// TestRepairsBehindTheFenceOnly: until the fences are set, a change that is still on its way explains a
// difference. A repair would conflict with it, while clients wait.
func TestRepairsBehindTheFenceOnly(t *testing.T) {
	t.Parallel()
	id := transform.GroupID{Name: "a"}
	for step, want := range map[us.Step]bool{us.StepHold: false, us.StepFence: false, us.StepDrain: true, us.StepSealTarget: true, us.StepAbort: false} {
		s := &shard{late: map[transform.GroupID]lateEntry{id: {seq: 1}}}
		e := &Engine{Parts: Parts{Direction: fromV1ToV2{}}, shards: map[int]*shard{0: s}}
		e.record.Upgrade = &us.Upgrade{State: us.Switching, Step: step}
		rounds, _, _ := e.beginRounds()
		found := e.endRounds(rounds, map[transform.GroupID]transform.Difference{id: {ID: id, Source: 1}})
		if got := len(found.repair) == 1; got != want {
			t.Errorf("%s: repaired at once: %v", step, got)
		}
	}
}

// TestNotesOfALateGroup: a round leaves what was noted of a group to a change of the source that came
// meanwhile, and to nothing else.
func TestNotesOfALateGroup(t *testing.T) {
	t.Parallel()
	id := transform.GroupID{Name: "a"}
	for name, tc := range map[string]struct {
		meanwhile func(s *shard)
		keeps     bool
	}{
		"a change":             {func(s *shard) { s.addLate(id) }, false},
		"another comparison":   {func(s *shard) { s.addAgain(id) }, true},
		"different again":      {func(s *shard) { s.addDifferent(id) }, true},
		"changed by others":    {func(s *shard) { s.addForeign(id) }, true},
		"a change, and others": {func(s *shard) { s.addLate(id); s.addForeign(id) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shard{watched: record.Position{Token: []byte("p")}, late: map[transform.GroupID]lateEntry{}}
			e := &Engine{shards: map[int]*shard{0: s}, news: make(chan struct{})}
			s.addDifferent(id)
			r := round{shard: s, ids: map[transform.GroupID]uint64{id: s.late[id].seq}}
			tc.meanwhile(s)
			e.endRounds([]round{r}, nil)
			if kept := s.found > 0; kept != tc.keeps {
				t.Errorf("the note is kept: %t, want %t", kept, tc.keeps)
			}
			if _, late := s.late[id]; !late {
				t.Error("the next round does not compare the group")
			}
		})
	}
}
