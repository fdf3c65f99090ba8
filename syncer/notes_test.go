package syncer

import (
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

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
