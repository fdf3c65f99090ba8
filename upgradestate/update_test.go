package upgradestate_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestUpdateWithFailures: a run whose task failed on some records is none that is done.
func TestUpdateWithFailures(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	run := us.Update{ID: "d1", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}
	r.apply("eve", us.BeginUpdate{Update: run})
	first := us.UpdateDone{ID: "d1", Shard: 0, Count: us.UpdateCount{Seen: 3, Changed: 1, Failed: 2}, Example: "x: it is bad"}
	r.apply("c-1", first)
	r.apply("c-1", first) // counts once
	r.apply("c-2", us.UpdateDone{ID: "d1", Shard: 1, Count: us.UpdateCount{Seen: 4, Failed: 1}, Example: "y: it is worse"})
	if e := r.d.History[0]; e.Outcome != "not done: 3 records failed, such as x: it is bad; 7 seen, 1 changed" {
		t.Errorf("it ended as %q", e.Outcome)
	}
	run.ID, run.Count, run.Example = "d2", us.UpdateCount{Failed: 7}, "z: of another run"
	r.apply("eve", us.BeginUpdate{Update: run})
	if u := r.d.Update; u.Count != (us.UpdateCount{}) || u.Example != "" {
		t.Errorf("it begins with %+v", u)
	}
}
