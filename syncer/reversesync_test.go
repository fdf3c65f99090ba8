package syncer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestReverseSyncStartsInSync: after a switch the reverse sync follows from the position that the
// switch noted. What is in the old namespace alone, because it was waived, stays there;
// what changed in the new one comes over, deletes too.
func TestReverseSyncStartsInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for key, n := range map[string]int{"kept": 1, "gone": 2} {
			w.write(w.src, "v1", mutation("a1", key, n))
			w.write(w.dst, "v2", mutation("a2", key, n))
		}
		w.write(w.src, "v1", mutation("a1", "waived", -1))
		w.drained(w.src, syncer.Key(1, w.dir, 0))
		w.flip(w.position(w.dst))
		w.write(w.dst, "v2", mutation("a2", "kept", 5), mutation("a2", "made", 6),
			record.Mutation{Kind: "a2", Key: record.StringKey("gone")})
		back := w.reverseSync()
		w.eventually("the old namespace to follow", func() bool { return w.holds(w.src, "v1", "a1") == "kept=5 made=6 waived=-1" })
		back.stop(t)
		if got := w.holds(w.dst, "v2", "a2"); got != "kept=5 made=6" {
			t.Errorf("v2 holds %q: something came back", got)
		}
		plan, found, err := w.store.LoadPlan(t.Context(), syncer.Key(2, w.back, 0))
		w.check(err)
		if !found || !plan.InSync || len(plan.Ranges) != 0 {
			t.Errorf("plan %+v", plan)
		}
	})
}

// TestReverseSyncWithoutPosition compares everything instead.
func TestReverseSyncWithoutPosition(t *testing.T) {
	for name, position := range map[string]string{"none": "", "unreadable": "{"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.write(w.src, "v1", mutation("a1", "old", 1))
				w.write(w.dst, "v2", mutation("a2", "new", 2))
				w.flip(position)
				back := w.reverseSync()
				w.eventually("the old namespace to equal the new one", func() bool { return w.holds(w.src, "v1", "a1") == "new=2" })
				back.stop(t)
			})
		})
	}
}

func (w *world) write(db *memstore.Store, version string, ms ...record.Mutation) {
	w.t.Helper()
	w.check(db.Write(w.t.Context(), w.tokens(version), ms))
}

// holds is what a kind holds, in name order.
func (w *world) holds(db *memstore.Store, version, kind string) string {
	w.t.Helper()
	recs, err := db.List(w.t.Context(), record.ListRequest{Token: w.tokens(version)[kind]})
	for errors.Is(err, record.ErrFenced) { // it was renamed in between
		<-time.After(time.Millisecond)
		recs, err = db.List(w.t.Context(), record.ListRequest{Token: w.tokens(version)[kind]})
	}
	w.check(err)
	var out []string
	for _, r := range recs {
		out = append(out, fmt.Sprintf("%s=%d", r.Key, itemOf(r).N))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// drained stores that all shards of a direction have followed its source up to now.
func (w *world) drained(source *memstore.Store, dir syncer.DirectionKey) {
	w.t.Helper()
	now, err := source.Position(w.t.Context())
	w.check(err)
	cs := map[int]syncer.Checkpoint{}
	for n := range ring {
		cs[n] = syncer.Checkpoint{Position: now, Target: now, Verified: true}
	}
	w.check(w.store.SaveCheckpoints(w.t.Context(), dir, cs))
}

// reverseSync starts the engine that follows v2.
func (w *world) reverseSync() *running { return w.follow(2, w.dst, w.src, w.back, w.owner(0, 1, 2, 3)) }

// follow starts the engine of an epoch.
func (w *world) follow(epoch uint64, from, to *memstore.Store, dir transform.Direction, o *shardstest.Owner) *running {
	return w.followTo(epoch, from, to, dir, o)
}

// followTo is follow to any database.
func (w *world) followTo(epoch uint64, from *memstore.Store, to record.Namespace, dir transform.Direction, o *shardstest.Owner) *running {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{
		engine: syncer.New(syncer.Parts{
			Source: from, Target: to, Direction: dir, Deployments: w.store, Journal: w.store, Ownership: o,
			Comparer: verify.New(from, to, dir), Lease: func() coord.LeaseID { return 0 },
			Log: zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel)),
		}, syncer.Config{Owner: "c", Epoch: epoch, Ring: ring, Workers: 2, Page: 5, Copy: true}),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.engine.Run(ctx) }()
	return r
}

// flip takes the record through a switch to v2, in which nobody does anything.
func (w *world) flip(position string) upgradestate.Deployment {
	w.t.Helper()
	return w.flipTo("v2", w.dir.Hash(), position)
}

func (w *world) flipTo(version, hash, position string) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	d = w.apply(upgradestate.Begin{ID: fmt.Sprintf("u%d", d.Epoch), TargetVersion: version, TransformHash: hash})
	for range 100 {
		if d.CurrentVersion == version {
			return d
		}
		for _, a := range upgradestate.Actions(d) {
			switch a := a.(type) {
			case upgradestate.Execute:
				if w.beforeFence != nil && a.Pending.Reason == upgradestate.PendingFence {
					w.beforeFence(a.Place.Kind)
				}
				d = w.execute(w.t.Context(), a)
			case upgradestate.Hold:
				d = w.apply(upgradestate.Held{ID: a.ID})
			case upgradestate.AwaitReports:
				d = w.apply(upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
			case upgradestate.StartSwitch:
				d = w.apply(a)
			case upgradestate.Drained:
				d = w.apply(a)
			case upgradestate.Flip:
				a.Switch.Position = position
				if w.beforeFlip != nil {
					w.beforeFlip()
				}
				d = w.apply(a)
			default:
				w.t.Fatalf("what is %T?", a)
			}
		}
	}
	w.t.Fatalf("no flip: %+v", d.Upgrade)
	return d
}

func (w *world) fencer(version string) record.Fencer {
	if version == "v1" {
		return w.src
	}
	return w.dst
}

// ship lists its hands, each of which names its ship in the old version.
type ship struct {
	ID    string `bson:"_id"`
	Hands []hand `bson:"hands"`
}

func ships(t *testing.T) *world {
	t.Helper()
	r := transform.NewRegistry("ships")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "ships", Revision: "1", Reversal: transform.ReversalNone, // the order of hands is lost
		Old: transform.Side{Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: "hands1"},
			Content:  func(r record.Record) (string, error) { return string(record.StringKey(handOf(r).Crew)), nil },
		}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "ships2"}}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			s := ship{ID: record.Key(src.Name).String()}
			for _, r := range src.Records {
				s.Hands = append(s.Hands, handOf(r))
			}
			doc, err := bson.Marshal(s)
			return []record.Record{{Kind: "ships2", Key: record.Key(src.Name), Doc: doc}}, err
		},
		Down: func(src, _ transform.Group) (out []record.Record, err error) {
			for _, r := range src.Records {
				var s ship
				if err := bson.Unmarshal(r.Doc, &s); err != nil {
					return nil, err
				}
				for _, h := range s.Hands {
					doc, err := bson.Marshal(hand{h.ID, s.ID, h.N})
					if err != nil {
						return nil, err
					}
					out = append(out, record.Record{Kind: "hands1", Key: record.StringKey(h.ID), Doc: doc})
				}
			}
			return out, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, r)
	w.back, err = r.Direction("v2", "v1")
	w.check(err)
	return w
}

// TestReverseSyncByContent: the rollback finds, though it copies nothing, which records of the
// old version belong to one of the new: it has the lineage of the way there.
func TestReverseSyncByContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ships(t)
		w.hire("ann", "ark", 1)
		w.hire("bob", "ark", 2)
		w.hire("cy", "bear", 3)
		w.hire("dan", "cat", 4)
		there := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", func() bool { return len(w.everything(w.dst, "v2", "ships2")) == 3 && there.synced() })
		there.stop(t)
		for n := range ring {
			w.free(n)
		}
		at, err := w.dst.Position(t.Context())
		w.check(err)
		text, err := json.Marshal(at)
		w.check(err)
		d := w.flip(string(text))
		made, err := syncer.Provision(t.Context(), w.src, d, "v1", "mem:v1", w.back.TargetKinds(), func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: made})
		back := w.reverseSync()
		sail := func(s ship) record.Mutation {
			m := record.Mutation{Kind: "ships2", Key: record.StringKey(s.ID)}
			if len(s.Hands) > 0 {
				m.Doc, err = bson.Marshal(s)
				w.check(err)
			}
			return m
		}
		// Bob changes ships, ann leaves the only trace that she has by not being listed, and a
		// whole ship goes down with nothing but its key.
		w.write(w.dst, "v2", sail(ship{ID: "bear", Hands: []hand{{ID: "cy", N: 3}, {ID: "bob", N: 2}}}), sail(ship{ID: "ark", Hands: []hand{{ID: "eve", N: 5}}}))
		w.write(w.dst, "v2", sail(ship{ID: "cat"}))
		w.eventually("the old namespace to follow", func() bool {
			var all []string
			for _, doc := range w.everything(w.src, "v1", "hands1") {
				h := handOf(record.Record{Doc: doc})
				all = append(all, fmt.Sprintf("%s@%s=%d", h.ID, h.Crew, h.N))
			}
			slices.Sort(all)
			return strings.Join(all, " ") == "bob@bear=2 cy@bear=3 eve@ark=5"
		})
		if parked, err := w.store.Parked(t.Context(), syncer.Key(2, w.back, 0), -1); err != nil || len(parked) > 0 {
			t.Errorf("parked %v, %v", parked, err)
		}
		back.stop(t)
	})
}
