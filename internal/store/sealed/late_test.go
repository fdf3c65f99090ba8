package sealed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
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
