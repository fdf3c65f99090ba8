package identity_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestNotesOfKeys: which keys a namespace's records are under stays in its mark, whatever else
// is written there, and makes a mark that older binaries refuse.
func TestNotesOfKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	owner := record.Owner{Deployment: deploymentName, Version: "v1"}
	notes := identity.NotesOf(w.db["v1"], owner)
	format := func() int32 {
		t.Helper()
		marks, err := w.db["v1"].Marks(t.Context())
		w.ok(err)
		var m struct{ Format int32 }
		for _, mark := range marks {
			if mark.Owner == owner {
				w.ok(bson.Unmarshal(mark.Body, &m))
			}
		}
		return m.Format
	}
	if st, err := notes.State(t.Context()); err != nil || st.New || st.Key != "" || format() != 1 {
		t.Errorf("of a namespace that never had keys: %+v, %v, format %d", st, err, format())
	}
	unchanged := func(*sealed.State) (bool, error) { return false, nil }
	w.ok(notes.Change(t.Context(), unchanged))
	if format() != 1 {
		t.Error("nothing was noted, and older binaries are kept out")
	}
	want := sealed.State{Key: "a001", Under: map[string]string{"a001": "check"}, Whole: true, Clear: map[string][]string{"accounts": {"mail"}}}
	w.ok(notes.Change(t.Context(), func(s *sealed.State) (bool, error) { *s = want; return true, nil }))
	w.d.Epoch++ // something that the leader notes
	w.ok(w.keeper().Keep(t.Context(), w.d))
	st, err := notes.State(t.Context())
	if err != nil || st.Key != "a001" || !st.Whole || st.Under["a001"] != "check" || len(st.Clear["accounts"]) != 1 || format() != 2 {
		t.Errorf("%+v, %v, format %d", st, err, format())
	}
	// A namespace that is not begun has no place for it.
	none := identity.NotesOf(memstore.NewCluster(memstore.Options{}).Open("v9"), record.Owner{Deployment: deploymentName, Version: "v9"})
	if st, err := none.State(t.Context()); err != nil || !st.New {
		t.Errorf("%+v, %v", st, err)
	}
	if err := none.Change(context.WithoutCancel(t.Context()), func(*sealed.State) (bool, error) { return true, nil }); err == nil {
		t.Error("keys are noted of a namespace without a mark")
	}
}

// TestKeysOfTheFirstMark: what a namespace is encrypted with is noted when it is begun, or not at
// all: a controller that is configured otherwise and comes second promises nothing of records that
// others may have written by then.
func TestKeysOfTheFirstMark(t *testing.T) {
	t.Parallel()
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: make([]byte, sealed.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	for _, plainFirst := range []bool{true, false} {
		db := memstore.NewCluster(memstore.Options{}).Open("v1")
		d := upgradestate.New(deploymentName, "v1", 2)
		notes := identity.NotesOf(db, record.Owner{Deployment: deploymentName, Version: "v1"})
		s := sealed.New("v1", func() *sealed.Keys { return keys }, notes)
		first, err := s.First(nil)
		if err != nil || first.Promised() != "a001" {
			t.Fatalf("%+v, %v", first, err)
		}
		begins := []*sealed.State{first, nil}
		want := "a001"
		if plainFirst {
			begins, want = []*sealed.State{nil, first}, sealed.Off
		}
		for _, keys := range begins {
			if err := identity.Take(t.Context(), d, "v1", db, nil, keys); err != nil {
				t.Fatal(err)
			}
			// Who is configured with a key refuses records in clear until an operator accepts them.
			if err := s.Begin(t.Context(), nil); plainFirst != errors.Is(err, sealed.ErrState) || !plainFirst && err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Accept(t.Context(), func(sealed.State) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if st, err := s.State(t.Context()); err != nil || st.Key != want || st.Promised() != want {
			t.Errorf("plain first %t: %+v, %v, want %s", plainFirst, st, err, want)
		}
	}
}
