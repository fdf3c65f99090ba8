package syncer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

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
