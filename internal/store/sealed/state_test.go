package sealed_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestStateIsReadSeldom: however much is written, the State is read once a second.
func TestStateIsReadSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
		before := w.notes.Reads()
		for range 100 {
			w.put("u1")
			time.Sleep(50 * time.Millisecond)
		}
		if n := w.notes.Reads() - before; n < 4 || n > 6 {
			t.Errorf("the State was read %d times in 5 s", n)
		}
	})
}

// TestBeforeItIsBegun: what is tried in the database of a namespace that has no mark yet is
// encrypted, too; and as soon as somebody has begun it, under the key that it was begun with.
func TestBeforeItIsBegun(t *testing.T) {
	t.Parallel()
	store := memstore.NewCluster(memstore.Options{}).Open("v1")
	unbegun := &unbegun{Notes: &recordtest.Notes{}}
	mine := sealed.New("v1", fixedKeys(keysOf(t, "a002", "a001", "a002")), unbegun).Namespace(store)
	tok, err := mine.Provision(t.Context(), record.KindSpec{Name: "users"}, record.PhysicalName("users", 0))
	if err != nil {
		t.Fatal(err)
	}
	load := func(id, want string) {
		t.Helper()
		key := record.StringKey(id)
		_, err := mine.Load(t.Context(), record.Batch{Tokens: record.Tokens{"users": tok}, Epoch: 1, Groups: []record.GroupWrite{
			{Group: id, Version: record.Version{1}, Writes: []record.Write{{Kind: "users", Key: key, Doc: docOf(t, id)}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Get(t.Context(), tok, key)
		if err != nil || sealed.Under(r.Doc) != want {
			t.Errorf("%s is under %s, %v, want %s", id, sealed.Under(r.Doc), err, want)
		}
	}
	load("tried", "a002")
	unbegun.begun = true // by somebody whose active key is another one
	other := sealed.New("v1", fixedKeys(keysOf(t, "a001", "a001", "a002")), unbegun)
	unbegun.Begin(t, other)
	load("first", "a001")
}

// unbegun are notes of a namespace without a mark, until it has one.
type unbegun struct {
	*recordtest.Notes
	begun bool
}

func (u *unbegun) State(ctx context.Context) (sealed.State, error) {
	if !u.begun {
		return sealed.State{New: true}, nil
	}
	return u.Notes.State(ctx)
}

// TestKeysThatAreTakenAway: keys without one that records are under do not suit a process that
// knows of them.
func TestKeysThatAreTakenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
	w.check(w.sealer.Check(t.Context()))
	if err := w.sealer.Suits(keysOf(t, "a002", "a002")); !errors.Is(err, sealed.ErrKey) || !strings.Contains(err.Error(), "a001") {
		t.Errorf("without a001: %v", err)
	}
	if err := w.sealer.Suits(keysOf(t, "a001", "a001")); err != nil {
		t.Errorf("without a002, which nothing is under: %v", err)
	}
}

// TestConditionsWhileItIsTurnedOn: a server that does not know yet that records are encrypted
// lets no database compare with what it cannot see.
func TestConditionsWhileItIsTurnedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "off", "a001"), record.Shape{})
		w.adopt(w.sealer)
		w.put("u1", bson.E{Key: "n", Value: int32(1)}) // it knows the State of now
		other := sealed.New("v1", fixedKeys(keysOf(t, "a001", "a001")), w.notes)
		w.check(other.Turn(t.Context(), "", "r1", "a001", nil))
		next := docOf(t, "u1", bson.E{Key: "n", Value: int32(2)})
		write := func(m record.Match) error {
			stored, err := other.Again(t.Context(), "r1", w.tok, record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1", bson.E{Key: "n", Value: int32(1)})})
			w.check(err)
			w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: stored}}))
			return w.write(record.Mutation{Kind: "users", Key: record.StringKey("u1"), Doc: next, Match: &m})
		}
		if err := write(record.Match{Path: "n", Value: bson.RawValue{Type: bson.TypeNull}}); !errors.Is(err, record.ErrMismatch) {
			t.Errorf("a field that the record has is taken for missing: %v", err)
		}
		if err := write(record.Match{Path: "n", Value: docOf(t, "", bson.E{Key: "n", Value: int32(1)}).Lookup("n")}); err != nil {
			t.Errorf("a field that the record has is not found: %v", err)
		}
		if got, err := w.get("u1"); err != nil || string(got) != string(next) {
			t.Errorf("it holds %s, %v", got, err)
		}
	})
}

// TestStateWithoutItsKey: a State whose key is nowhere among those of the records makes nobody
// write in clear.
func TestStateWithoutItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	for key, want := range map[string]error{"a001": sealed.ErrState, "a002": sealed.ErrKey} {
		w.check(w.notes.Change(t.Context(), func(st *sealed.State) (bool, error) {
			*st = sealed.State{Key: key, Under: map[string]string{sealed.Off: ""}}
			return true, nil
		}))
		s := sealed.New("v1", fixedKeys(w.keys), w.notes)
		err := s.Client(w.store).Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey(key), Doc: docOf(t, key)}})
		if !errors.Is(err, want) {
			t.Errorf("under %s: %v, want %v", key, err, want)
		}
		if err == nil && sealed.Under(w.stored(key)) != key {
			t.Errorf("under %s it is stored as %s", key, w.stored(key))
		}
	}
}

// TestTrials: indexes are tried in scratch collections, whether a namespace is begun or not, see
// what they are over, and leave nothing in its State.
func TestTrials(t *testing.T) {
	t.Parallel()
	index := func(unique bool) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "mail", Value: int32(1)}}}, {Key: "name", Value: "mail_1"}, {Key: "unique", Value: unique}})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for _, begun := range []bool{false, true} {
		w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
		w.sealer = sealed.New("v1", fixedKeys(w.keys), &unbegun{Notes: w.notes, begun: begun})
		w.ns, w.client = w.sealer.Namespace(w.store), w.sealer.Client(w.store)
		d := upgradestate.New("d", "v0", 1)
		specs := []record.KindSpec{{Name: "others", Shape: record.Shape{Indexes: []bson.Raw{index(false)}}}}
		if _, err := syncer.Provision(t.Context(), w.ns, d, "v1", "mem", specs, func(string) record.FenceClass { return "" }); err != nil {
			t.Errorf("begun %t: a kind with an index: %v", begun, err)
		}
		plan := record.KindSpec{Name: record.PlanKinds + "x.users", Shape: record.Shape{Indexes: []bson.Raw{index(true)}}}
		tok, err := w.ns.Provision(t.Context(), plan, record.PhysicalName(plan.Name, 1))
		w.check(err)
		var want error
		for _, id := range []string{"u1", "u2"} {
			key := record.StringKey(id)
			err := w.client.Write(t.Context(), record.Tokens{plan.Name: tok}, []record.Mutation{{Kind: plan.Name, Key: key, Doc: docOf(t, id, bson.E{Key: "mail", Value: "m@x"}, bson.E{Key: "text", Value: canary})}})
			if !errors.Is(err, want) {
				t.Errorf("begun %t: %s of a scratch kind with a unique index: %v, want %v", begun, id, err, want)
			}
			want = record.ErrConflict
		}
		st, err := w.sealer.State(t.Context())
		w.check(err)
		for kind := range st.Clear {
			if record.IsScratch(kind) {
				t.Errorf("begun %t: %s is noted", begun, kind)
			}
		}
	}
}
