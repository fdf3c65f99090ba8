package keys

import (
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestStrayIsBroughtOver: a record that is found under the key of before has all of them gone over
// again, though the rotation to the key of now is done.
func TestStrayIsBroughtOver(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a002", "a001", "a002"))
	run := k.begin("r1", "a002")
	s := k.way.Sealer()
	k.check(s.Turn(t.Context(), "", run.ID, run.Key, nil))
	k.finish(run.ID)
	if u := k.keep().Update; u != nil {
		t.Errorf("it rotates to %s", u.Key)
	}
	k.check(s.Admit(t.Context(), "a001"))
	d := k.keep()
	st, err := s.State(t.Context())
	if err != nil || st.Promised() != "" || d.Update == nil || d.Update.Key != "a002" || d.Update.ID == run.ID {
		t.Fatalf("%+v, %v, update %+v", st, err, d.Update)
	}
	k.check(s.Turn(t.Context(), st.Run, d.Update.ID, d.Update.Key, nil))
	k.apply(upgradestate.UpdateDone{ID: d.Update.ID})
	k.keep()
	if st, err := s.State(t.Context()); err != nil || st.Promised() != "a002" || len(st.InUse()) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
}
