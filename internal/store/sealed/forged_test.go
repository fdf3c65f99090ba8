package sealed_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// TestForgedState: a login with database writes and no key changes the state of keys in the mark.
// No process with an active key goes by it: none writes in clear, none takes a plain record for a
// record, none shows more fields, and no rotation begins from it.
func TestForgedState(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(*sealed.State){
		"off":        func(st *sealed.State) { st.Key, st.Under = sealed.Off, map[string]string{sealed.Off: ""} },
		"off beside": func(st *sealed.State) { st.Key = sealed.Off; st.Under[sealed.Off] = "" },
		"never had keys": func(st *sealed.State) {
			*st = sealed.State{}
		},
		"plain ones too": func(st *sealed.State) { st.Under[sealed.Off] = "" },
		"plain strays":   func(st *sealed.State) { st.Strays = []string{sealed.Off} },
		"a former key":   func(st *sealed.State) { st.Key = "a002" },
		"a field":        func(st *sealed.State) { st.Clear = map[string][]string{"users": {"text"}} },
		"a promise":      func(st *sealed.State) { st.Whole = !st.Whole },
		"a run":          func(st *sealed.State) { st.Run = "r9" },
		"its proof":      func(st *sealed.State) { st.Key, st.Seal.Sum = sealed.Off, make([]byte, 32) },
		"no proof":       func(st *sealed.State) { st.Key, st.Seal = sealed.Off, nil },
		"another proof":  func(st *sealed.State) { st.Key, st.Seal.Key = sealed.Off, "a002" },
		"an unknown key": func(st *sealed.State) { st.Key, st.Seal.Key = sealed.Off, "zzzz" },
		"a higher count": func(st *sealed.State) { st.Key, st.Count = sealed.Off, 1000 },
	} {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
		w.put("u1", bson.E{Key: "text", Value: canary})
		w.check(w.notes.Change(t.Context(), func(st *sealed.State) (bool, error) {
			st.Under = map[string]string{"a001": st.Under["a001"]}
			seal := *st.Seal
			st.Seal = &seal
			forge(st)
			return true, nil
		}))
		w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("forged"), Doc: docOf(t, "forged")}}))
		fresh := sealed.New("v1", fixedKeys(w.keys), w.notes) // started since
		client := fresh.Client(w.store)
		if err := fresh.Check(t.Context()); !errors.Is(err, sealed.ErrState) {
			t.Errorf("%s: a process starts with it: %v", name, err)
		}
		if fresh.Problem() == nil {
			t.Errorf("%s: the process is ready", name)
		}
		err := client.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u2"), Doc: docOf(t, "u2", bson.E{Key: "text", Value: canary})}})
		if !errors.Is(err, sealed.ErrState) {
			t.Errorf("%s: a write: %v", name, err)
		}
		if _, err := client.Get(t.Context(), w.tok, record.StringKey("forged")); err == nil {
			t.Errorf("%s: a plain record is passed on", name)
		}
		if _, err := w.get("forged"); err == nil {
			t.Errorf("%s: a plain record is passed on by a process that runs", name)
		}
		if got, err := w.get("u1"); err != nil || got.Lookup("text").StringValue() != canary {
			t.Errorf("%s: a process that runs no longer reads what is encrypted: %s, %v", name, got, err)
		}
		for verb, err := range map[string]error{
			"turn": fresh.Turn(t.Context(), "", "r1", "a001", nil), "admit": fresh.Admit(t.Context(), "a002"),
			"finish": fresh.Finish(t.Context(), "r9"), "begin": fresh.Begin(t.Context(), nil),
		} {
			if !errors.Is(err, sealed.ErrState) {
				t.Errorf("%s: %s: %v", name, verb, err)
			}
		}
	}
}

// TestStateOfAnother: a state of keys that was taken from another namespace with the same keys.
func TestStateOfAnother(t *testing.T) {
	t.Parallel()
	keys := fixedKeys(keysOf(t, "a001", "a001"))
	other := &recordtest.Notes{}
	first, err := sealed.New("v1", keys, whose{other, "v1 of another"}).First(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Change(t.Context(), func(st *sealed.State) (bool, error) { *st = *first; return true, nil }); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string]error{"v1 of another": nil, "v1 of this": sealed.ErrState} {
		if err := sealed.New("v1", keys, whose{other, of}).Check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", of, err, want)
		}
	}
}

type whose struct {
	*recordtest.Notes
	name string
}

func (w whose) Whose() string { return w.name }

// TestMarkIsRemoved: without a mark nothing is known of the records, and a plain one may be
// anybody's all the same.
func TestMarkIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}}))
	s := sealed.New("v1", fixedKeys(w.keys), &unbegun{Notes: w.notes})
	if _, err := s.Client(w.store).Get(t.Context(), w.tok, record.StringKey("u1")); !errors.Is(err, sealed.ErrTampered) {
		t.Errorf("a plain record is passed on: %v", err)
	}
}

// TestStateThatIsPutBack: the state from before encryption was turned on was proven, too. Who
// puts it back changes nothing for the processes that have seen a later one.
func TestStateThatIsPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, sealed.Off, "a001"), record.Shape{})
		w.adopt(w.sealer)
		old, err := w.notes.State(t.Context())
		w.check(err)
		w.keys = keysOf(t, "a001", "a001")
		w.put("u1") // in clear until the rotation begins
		if under := sealed.Under(w.stored("u1")); under != sealed.Off {
			t.Fatalf("it is under %s", under)
		}
		w.turn("r1", "a001")
		w.bring()
		w.check(w.sealer.Finish(t.Context(), "r1"))
		w.check(w.notes.Change(t.Context(), func(st *sealed.State) (bool, error) { *st = old; return true, nil }))
		for range 3 {
			time.Sleep(15 * time.Second)
			w.put("u2", bson.E{Key: "text", Value: canary})
			if under := sealed.Under(w.stored("u2")); under != "a001" {
				t.Errorf("it is written under %s", under)
			}
			w.check(w.store.Require(t.Context(), []record.Token{w.tok}, record.Label{Field: sealed.Field, Absent: true, Begins: [][]byte{[]byte("\x01a001")}}))
			w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u3"), Doc: docOf(t, "u3")}}))
			if _, err := w.get("u3"); !errors.Is(err, sealed.ErrTampered) {
				t.Errorf("a plain record: %v", err)
			}
		}
		if err := w.sealer.Turn(t.Context(), "", "r2", "a001", nil); !errors.Is(err, sealed.ErrState) {
			t.Errorf("a rotation begins from it: %v", err)
		}
	})
}

// TestFormerKeyIsPutBack: the state from before a rotation was proven, too, under a key that is still
// configured. Processes that have seen the later one write under the later key.
func TestFormerKeyIsPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
		w.put("u1")
		old, err := w.notes.State(t.Context())
		w.check(err)
		w.keys = keysOf(t, "a002", "a001", "a002")
		w.turn("r1", "a002")
		w.bring()
		w.check(w.sealer.Finish(t.Context(), "r1"))
		w.check(w.notes.Change(t.Context(), func(st *sealed.State) (bool, error) { *st = old; return true, nil }))
		w.check(w.store.Require(t.Context(), []record.Token{w.tok}, record.Label{Field: sealed.Field, Absent: true, Begins: [][]byte{[]byte("\x01a001"), []byte("\x01a002")}}))
		time.Sleep(15 * time.Second)
		w.put("u2")
		if under := sealed.Under(w.stored("u2")); under != "a002" {
			t.Errorf("it is written under %s", under)
		}
		if _, err := w.get("u1"); err != nil {
			t.Errorf("a record is not read: %v", err)
		}
	})
}

// TestForgedCount: a count that the database cannot raise does not stand in the way of an operator who
// has the state accepted.
func TestForgedCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	w.check(w.notes.Change(t.Context(), func(st *sealed.State) (bool, error) {
		st.Count, st.Seal = math.MaxInt64, nil
		return true, nil
	}))
	w.check(w.sealer.Accept(t.Context(), func(sealed.State) error { return nil }))
	if st, err := w.notes.State(t.Context()); err != nil || st.Count > math.MaxInt64 {
		t.Errorf("the count is %d, which is no number of the database: %v", st.Count, err)
	}
}

// TestAcceptedState: a state that nobody with a key has vouched for, as former versions left it, is
// refused until an operator accepts it, or the configuration asks for no encryption. A rotation of
// the key takes the proof along: who has the former key alone no longer has a proof.
func TestAcceptedState(t *testing.T) {
	t.Parallel()
	for _, active := range []string{"a001", sealed.Off} {
		w := newWorld(t, keysOf(t, ""), record.Shape{})
		w.put("u1")
		w.keys = keysOf(t, active, "a001", "a002")
		with := func(active string, names ...string) error {
			return sealed.New("v1", fixedKeys(keysOf(t, active, names...)), w.notes).Check(t.Context())
		}
		if err := with("a001", "a001"); !errors.Is(err, sealed.ErrState) {
			t.Errorf("%s: before: %v", active, err)
		}
		off := sealed.New("v1", fixedKeys(keysOf(t, sealed.Off, "a001")), w.notes)
		w.check(off.Check(t.Context()))
		if err := off.Suits(keysOf(t, "a001", "a001")); !errors.Is(err, sealed.ErrState) {
			t.Errorf("%s: a process that runs takes the active key before the mark has proof: %v", active, err)
		}
		no := errors.New("no")
		if err := w.sealer.Accept(t.Context(), func(sealed.State) error { return no }); !errors.Is(err, no) {
			t.Error(err)
		}
		if active == sealed.Off {
			w.adopt(w.sealer)
		} else {
			w.check(w.sealer.Accept(t.Context(), func(st sealed.State) error {
				if fmt.Sprint(st.InUse()) != "[off]" {
					t.Errorf("the operator is asked about %v", st)
				}
				return nil
			}))
		}
		w.check(with("a001", "a001"))
		w.check(off.Check(t.Context()))
		w.check(off.Suits(keysOf(t, "a001", "a001")))
		w.check(with("", []string{}...))
		w.keys = keysOf(t, "a002", "a001", "a002")
		w.turn("r1", "a002")
		w.bring()
		w.check(w.sealer.Finish(t.Context(), "r1"))
		w.check(with("a002", "a002"))
		if err := with("a001", "a001"); !errors.Is(err, sealed.ErrKey) {
			t.Errorf("%s: who has the former key alone: %v", active, err)
		}
	}
}
