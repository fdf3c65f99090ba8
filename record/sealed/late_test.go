package sealed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/memstore"
	"dbcontroller.dev/record/recordtest"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestFrozenWriter: a process that sleeps between encrypting and sending, over a whole rotation, is
// refused by the database, reads which key is the one, and writes under that, whatever it writes
// and whichever keys the rotation was between. The promise stands.
func TestFrozenWriter(t *testing.T) {
	t.Parallel()
	for _, step := range []struct{ from, to string }{{"a001", "a002"}, {sealed.Off, "a001"}, {"a001", sealed.Off}} {
		t.Run(step.from+" to "+step.to, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, keysOf(t, step.from, "a001", "a002"), record.Shape{})
			was := w.put("u1", bson.E{Key: "n", Value: int32(1)})
			runs := 0
			over := func() {
				runs++
				w.turn(fmt.Sprint("r", runs), step.to)
				w.bring()
				w.check(w.sealer.Finish(t.Context(), fmt.Sprint("r", runs)))
			}
			back := func() {
				runs++
				w.turn(fmt.Sprint("r", runs), step.from)
				w.bring()
				w.check(w.sealer.Finish(t.Context(), fmt.Sprint("r", runs)))
			}
			toks := record.Tokens{"users": w.tok}
			put := func(id string, n int32) record.Mutation {
				return record.Mutation{Kind: "users", Key: record.StringKey(id), Doc: docOf(t, id, bson.E{Key: "n", Value: n})}
			}
			matching := put("u1", 3)
			matching.Match = record.MatchDoc(put("u1", 2).Doc)
			group := func(id string) record.Batch {
				return record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{{Group: id, Version: record.Version{1},
					Writes: []record.Write{{Kind: "users", Key: record.StringKey(id), Doc: docOf(t, id)}}}}}
			}
			for what, send := range map[string]func(c *sealed.Client, n *sealed.Namespace) error{
				"a put": func(c *sealed.Client, _ *sealed.Namespace) error {
					return c.Write(t.Context(), toks, []record.Mutation{put("u1", 2)})
				},
				"a match": func(c *sealed.Client, _ *sealed.Namespace) error {
					w.put("u1", bson.E{Key: "n", Value: int32(2)})
					return c.Write(t.Context(), toks, []record.Mutation{matching})
				},
				"once": func(c *sealed.Client, _ *sealed.Namespace) error {
					_, err := c.CreateOnce(t.Context(), toks, "marker", []record.Record{{Kind: "users", Key: record.StringKey("u2"), Doc: docOf(t, "u2")}})
					return err
				},
				"a group": func(_ *sealed.Client, n *sealed.Namespace) error {
					_, err := n.Apply(t.Context(), group("u3"))
					if !errors.Is(err, record.ErrLabel) {
						t.Errorf("a group: %v", err)
					}
					_, err = n.Apply(t.Context(), group("u3")) // as who syncs does
					return err
				},
				"a load": func(_ *sealed.Client, n *sealed.Namespace) error {
					if _, err := n.Load(t.Context(), group("u4")); !errors.Is(err, record.ErrLabel) {
						t.Errorf("a load: %v", err)
					}
					return nil
				},
				"a swap": func(_ *sealed.Client, n *sealed.Namespace) error {
					w.put("u1", bson.E{Key: "n", Value: int32(1)})
					_, err := n.Swap(t.Context(), w.tok, []record.Swap{{Key: record.StringKey("u1"), Was: was, Doc: put("u1", 4).Doc}})
					return err
				},
			} {
				asleep := &frozen{OnceClient: w.store, Namespace: w.store, over: over}
				s := sealed.New("v1", fixedKeys(w.keys), w.notes)
				if err := send(s.Client(asleep), s.Namespace(frozenNamespace{asleep})); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				st, err := w.sealer.State(t.Context())
				if err != nil || st.Promised() != step.to || asleep.over != nil {
					t.Errorf("%s: %+v, %v", what, st, err)
				}
				w.check(record.ScanPages(t.Context(), w.store, w.tok, 0, func(p record.Page) error {
					for _, r := range p.Records {
						if name := sealed.Under(r.Doc); name != step.to {
							t.Errorf("%s: %s is under %s", what, r.Key, name)
						}
					}
					return nil
				}))
				back()
			}
		})
	}
}

// frozen is a process that is frozen once, before it sends a write, and its clock with it.
type frozen struct {
	record.OnceClient
	record.Namespace
	over func()
}

func (f *frozen) sleep() {
	if over := f.over; over != nil {
		f.over = nil
		over()
	}
}

func (f *frozen) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	f.sleep()
	return f.OnceClient.Write(context.WithoutCancel(ctx), toks, ms)
}

func (f *frozen) CreateOnce(ctx context.Context, toks record.Tokens, marker string, rs []record.Record) (bool, error) {
	f.sleep()
	return f.OnceClient.CreateOnce(context.WithoutCancel(ctx), toks, marker, rs)
}

// frozenNamespace is the same process, as one that syncs.
type frozenNamespace struct {
	*frozen
}

func (f frozenNamespace) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	f.sleep()
	return f.Namespace.Apply(ctx, b)
}

func (f frozenNamespace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	f.sleep()
	return f.Namespace.Load(ctx, b)
}

func (f frozenNamespace) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	f.sleep()
	return f.Namespace.Swap(ctx, tok, swaps)
}

func (f frozenNamespace) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	f.sleep()
	return f.Namespace.Require(ctx, toks, l)
}

// TestFrozenHold: who sleeps on the way to the database, over a whole further run, leaves it with
// the key of then.
func TestFrozenHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002", "a003"), record.Shape{})
	w.turn("r1", "a002")
	asleep := frozenNamespace{&frozen{OnceClient: w.store, Namespace: w.store, over: func() { w.turn("r2", "a003") }}}
	w.check(sealed.New("v1", fixedKeys(w.keys), w.notes).Namespace(asleep).Hold(t.Context(), []record.Token{w.tok}))
	w.put("u1")
	if name := sealed.Under(w.stored("u1")); name != "a003" || asleep.over != nil {
		t.Errorf("it is under %s", name)
	}
}

// TestLateGoesOn: while the database and the State are apart, as they are when a controller dies
// between the two, a write is tried again until they agree.
func TestLateGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
		w.turn("r1", "a001")
		w.check(w.sealer.Turn(t.Context(), "r1", "r2", "a002", nil))
		done := make(chan error, 1)
		go func() {
			done <- w.write(record.Mutation{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")})
		}()
		time.Sleep(5 * time.Second)
		w.check(w.ns.Hold(t.Context(), []record.Token{w.tok}))
		if err := <-done; err != nil || sealed.Under(w.stored("u1")) != "a002" {
			t.Errorf("%v", err)
		}
		w.check(w.ns.Require(t.Context(), []record.Token{w.tok}, record.Label{Field: sealed.Field, Absent: true}))
		begun := time.Now()
		err := w.write(record.Mutation{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")})
		if waited := time.Since(begun); !errors.Is(err, record.ErrLabel) || waited > 25*time.Second {
			t.Errorf("after %s: %v", waited, err)
		}
	})
}

// TestAgainByAnotherState: a pass does not go by a State from before or after its run.
func TestAgainByAnotherState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
	w.put("u1")
	r := record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: w.stored("u1")}
	if doc, err := w.sealer.Again(t.Context(), "r1", w.tok, r); !errors.Is(err, sealed.ErrOvertaken) || doc != nil {
		t.Errorf("before it: %s, %v", doc, err)
	}
	w.turn("r1", "a002")
	if doc, err := w.sealer.Again(t.Context(), "r1", w.tok, r); err != nil || sealed.Under(doc) != "a002" {
		t.Errorf("in it: %s, %v", doc, err)
	}
	w.turn("r2", "a001")
	if doc, err := w.sealer.Again(t.Context(), "r1", w.tok, r); !errors.Is(err, sealed.ErrOvertaken) || doc != nil {
		t.Errorf("after it: %s, %v", doc, err)
	}
}

// TestStray: a record under a former key, which somebody put there past the database's own check,
// is read by who has that key, and the promise is taken back. The next rotation mends it. Who lacks
// the former key goes on next to it.
func TestStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
	doc := w.put("u1", bson.E{Key: "n", Value: int32(2)})
	w.turn("r1", "a002")
	w.check(w.sealer.Finish(t.Context(), "r1")) // without a pass
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || sealed.Under(w.stored("u1")) != "a001" {
		t.Fatalf("%+v, %v, and it is under %s", st, err, sealed.Under(w.stored("u1")))
	}
	without := sealed.New("v1", fixedKeys(keysOf(t, "a002", "a002")), w.notes)
	for range 2 {
		if got, err := w.get("u1"); err != nil || string(got) != string(doc) {
			t.Errorf("it is read as %s, %v", got, err)
		}
		st, err := w.sealer.State(t.Context())
		if err != nil || st.Promised() != "" || st.Key != "a002" || fmt.Sprint(st.InUse()) != "[a001 a002]" || st.Run == "r1" || st.Run == "" {
			t.Errorf("after it was found: %+v, %v", st, err)
		}
		if err := without.Check(t.Context()); err != nil {
			t.Errorf("a process without the former key: %v", err)
		}
	}
	w.check(w.sealer.Finish(t.Context(), "r1")) // by who has not seen that
	if st, _ := w.sealer.State(t.Context()); st.Promised() != "" {
		t.Error("the rotation before makes the promise again")
	}
	w.turn("r2", "a002")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r2"))
	if got, err := w.get("u1"); err != nil || string(got) != string(doc) || sealed.Under(w.stored("u1")) != "a002" {
		t.Errorf("after another pass: %s, %v, under %s", got, err, sealed.Under(w.stored("u1")))
	}
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || len(st.Strays) > 0 {
		t.Errorf("after another pass: %+v, %v", st, err)
	}
}

// TestStrayBehindThePass: a stray that is read while a run goes on, whose pass is past it, is not
// forgotten with the end of that run.
func TestStrayBehindThePass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002", "a003"), record.Shape{})
	w.put("u1")
	w.turn("r1", "a002")
	w.bring()
	w.stray("u2", "a003")
	if _, err := w.get("u2"); err != nil {
		t.Errorf("it is read: %v", err)
	}
	if doc, err := w.sealer.Again(t.Context(), "r1", w.tok, record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: w.stored("u1")}); doc != nil || err != nil {
		t.Errorf("the pass does not go on: %s, %v", doc, err)
	}
	w.check(w.sealer.Finish(t.Context(), "r1"))
	st, err := w.sealer.State(t.Context())
	if err != nil || st.Promised() != "" || st.Run == "r1" || fmt.Sprint(st.InUse()) != "[a002 a003]" {
		t.Errorf("after the run: %+v, %v", st, err)
	}
	w.turn("r2", "a002")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r2"))
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || sealed.Under(w.stored("u2")) != "a002" {
		t.Errorf("after another run: %+v, %v", st, err)
	}
}

// stray writes a record under a key past what the database takes.
func (w *world) stray(id, key string) {
	w.t.Helper()
	w.check(w.store.Require(w.t.Context(), []record.Token{w.tok}, record.Label{Field: sealed.Field, Begins: [][]byte{append([]byte{1}, key...)}}))
	notes := &recordtest.Notes{}
	s := sealed.New("v1", fixedKeys(keysOf(w.t, key, key)), notes)
	notes.Begin(w.t, s)
	w.check(s.Client(w.store).Write(w.t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey(id), Doc: docOf(w.t, id)}}))
}

// TestStrayThatCannotBeNoted is read all the same, and the log says why the promise is wrong: once
// for each reason, however many records there are.
func TestStrayThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002", "a003"), record.Shape{})
		w.stray("u1", "a002")
		w.stray("u2", "a002")
		w.stray("u3", "a003")
		notes := &unnotable{Notes: w.notes}
		core, logged := observer.New(zap.WarnLevel)
		s := sealed.New("v1", fixedKeys(w.keys), notes)
		s.Log = zap.New(core)
		forbidden, away := errors.New("not authorized"), errors.New("no primary")
		for i, step := range []struct {
			ids   []string
			why   error
			lines int
		}{
			{[]string{"u1", "u2"}, forbidden, 1}, {[]string{"u1", "u2"}, forbidden, 1}, {[]string{"u1"}, away, 2},
			{[]string{"u1", "u2"}, nil, 2}, {[]string{"u3"}, away, 3},
		} {
			notes.err = step.why
			for _, id := range step.ids {
				if _, err := s.Client(w.store).Get(t.Context(), w.tok, record.StringKey(id)); err != nil {
					t.Errorf("step %d: %s: %v", i, id, err)
				}
				time.Sleep(2 * time.Second)
			}
			if n := logged.Len(); n != step.lines {
				t.Errorf("step %d: %d lines, want %d", i, n, step.lines)
			}
		}
		fields := logged.All()[0].ContextMap()
		if fields["key"] != "a002" || !strings.Contains(fmt.Sprint(fields["error"]), "not authorized") {
			t.Errorf("it says %v", fields)
		}
		if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "" {
			t.Errorf("in the end: %+v, %v", st, err)
		}
	})
}

// unnotable are notes that cannot be changed.
type unnotable struct {
	*recordtest.Notes
	err error
}

func (u *unnotable) Change(ctx context.Context, change func(*sealed.State) (bool, error)) error {
	if u.err != nil {
		return u.err
	}
	return u.Notes.Change(ctx, change)
}

// TestPlainStray: a plain record among encrypted ones is anybody's, and refused, until an operator
// answers for it.
func TestPlainStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}}))
	plain := record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}
	_, err := w.get("u1")
	if again, errAgain := w.sealer.Again(t.Context(), "", w.tok, plain); !errors.Is(err, sealed.ErrTampered) || !errors.Is(errAgain, sealed.ErrTampered) || again != nil {
		t.Errorf("a plain record is taken for one of ours: %v, %v, %v", err, again, errAgain)
	}
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a001" {
		t.Errorf("a writer of a plain record ends the promise: %+v, %v", st, err)
	}
	w.check(w.sealer.Admit(t.Context(), sealed.Off))
	if _, err := w.get("u1"); err != nil {
		t.Errorf("admitted: %v", err)
	}
	w.turn("r1", "a001")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r1"))
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a001" || sealed.Under(w.stored("u1")) != "a001" {
		t.Errorf("after a pass: %+v, %v, under %s", st, err, sealed.Under(w.stored("u1")))
	}
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
	for key, want := range map[string]error{"a001": nil, "a002": sealed.ErrKey} {
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
