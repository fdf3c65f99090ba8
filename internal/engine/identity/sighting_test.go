package identity_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// sightings are stored in a variable.
type sightings map[string]identity.Sighting

func (s sightings) LoadSighting(_ context.Context, version string) (identity.Sighting, error) {
	return s[version], nil
}

func (s sightings) SaveSighting(_ context.Context, version string, seen identity.Sighting) error {
	s[version] = seen
	return nil
}

// TestProven: Proven accepts a collection that only the cluster recreated. It refuses one that a person
// put in its place, also if the cluster moved either of them before or after.
func TestProven(t *testing.T) {
	t.Parallel()
	type place struct {
		*world
		db   *memstore.Store
		name string // of the collection
		seen sightings
	}
	restore := func(p place) {
		p.ok(p.db.DropAndRestore(p.t.Context(), p.name, func(f *memstore.Foreign) error {
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "older"}})
			p.ok(err)
			return f.Insert(p.t.Context(), p.name, doc)
		}))
	}
	look := func(p place) { p.ok(identity.Look(p.t.Context(), p.d, "v1", p.db, p.seen, true)) }
	for name, tc := range map[string]struct {
		want   string // part of the reason; empty: it is proven
		before func(p place)
		do     func(p place)
	}{
		"movePrimary":            {"", look, func(p place) { p.db.MovePrimary() }},
		"reshardCollection":      {"", look, func(p place) { p.db.Reshard(p.name) }},
		"both, twice":            {"", look, func(p place) { p.db.MovePrimary(); p.db.Reshard(p.name); p.db.Reshard(p.name); p.db.MovePrimary() }},
		"restored":               {"was dropped", look, restore},
		"moved, then restored":   {"was dropped", look, func(p place) { p.db.MovePrimary(); restore(p) }},
		"restored, then moved":   {"was dropped", look, func(p place) { restore(p); p.db.MovePrimary() }},
		"resharded and restored": {"was dropped", look, func(p place) { p.db.Reshard(p.name); restore(p) }},
		"never seen":             {"before a controller had seen it", func(place) {}, func(p place) { p.db.MovePrimary() }},
		"seen under another name": {"before a controller had seen it", func(p place) {
			look(p)
			s := p.seen["v1"]
			s.Kinds = strings.Repeat("0", len(s.Kinds))
			p.seen["v1"] = s
		}, func(p place) { p.db.MovePrimary() }},
		"history lost": {"does not reach back", look, func(p place) { p.db.MovePrimary(); p.clusters["v1"].LoseHistory() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, memstore.Options{FixedFence: record.FenceValidator, Moves: true})
			ns, _ := w.d.Namespace("v1")
			k, _ := ns.Kind("accounts")
			p := place{w, w.db["v1"], k.Physical, sightings{}}
			tc.before(p)
			tc.do(p)
			// Whatever happened, it looks the same without the changes.
			lost, err := identity.Lost(t.Context(), w.d, "v1", p.db)
			w.ok(err)
			e, err := identity.Gather(t.Context(), deploymentName, w.markers())
			w.ok(err)
			anew, err := e.MadeAnew(w.d)
			w.ok(err)
			if len(lost) != 1 || lost[0] != "accounts" || len(anew) != 1 || anew[0].Kind != "accounts" {
				t.Fatalf("lost are %v, made anew %+v", lost, anew)
			}
			// A look at a collection that is gone must not count as a sighting.
			had := p.seen["v1"]
			if err := identity.Look(t.Context(), w.d, "v1", p.db, p.seen, true); err == nil || p.seen["v1"].Kinds != had.Kinds {
				t.Errorf("the lost collection was seen: %v", err)
			}
			err = identity.Proven(t.Context(), w.d, "v1", p.db, p.seen, anew)
			var unproven *identity.UnprovenError
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("not proven: %v", err)
			case tc.want != "" && (!errors.As(err, &unproven) || unproven.Kind != "accounts" || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
			// Another collection than the changes lead to.
			anew[0].Is = newID
			if err := identity.Proven(t.Context(), w.d, "v1", p.db, p.seen, anew); !errors.As(err, &unproven) {
				t.Errorf("a foreign collection is proven: %v", err)
			}
		})
	}
}

// TestProvenOnAShardedServerAlone: on another server, a new collection is never the cluster's work.
func TestProvenOnAShardedServerAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceValidator)
	seen := sightings{}
	w.ok(identity.Look(t.Context(), w.d, "v1", w.db["v1"], seen, true))
	w.db["v1"].MovePrimary()
	err := identity.Proven(t.Context(), w.d, "v1", w.db["v1"], seen, []upgradestate.Adopted{{Version: "v1", Kind: "accounts"}})
	var unproven *identity.UnprovenError
	if !errors.As(err, &unproven) || !strings.Contains(err.Error(), "not sharded") {
		t.Errorf("error %v", err)
	}
}

// TestAnnounceBehindASwitch: a late announcement must not overwrite that of a switch which is about to
// flip.
func TestAnnounceBehindASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceValidator)
	next := upgradestate.Clone(w.d)
	next.Epoch += 3
	w.ok(identity.Announce(t.Context(), next, "a-switch", w.markers()))
	late := upgradestate.Clone(w.d)
	late.Epoch += 2
	if err := identity.Announce(t.Context(), late, identity.RecoveryID+"late", w.markers()); err == nil {
		t.Error("it is overwritten")
	}
}

// TestLostAfterItsClaim: a controller that accepts a moved collection dies after its claim and before the
// record. The next one must find it again, or the service stays down.
func TestLostAfterItsClaim(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, memstore.Options{FixedFence: record.FenceValidator, Moves: true})
	w.db["v1"].MovePrimary()
	e, err := identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	anew, err := e.MadeAnew(w.d)
	w.ok(err)
	next, err := upgradestate.Apply(w.d, upgradestate.Adopt{Epoch: w.d.Epoch, Collections: anew})
	w.ok(err)
	w.ok(identity.Announce(t.Context(), next, identity.RecoveryID+"one", w.markers()))
	w.ok(identity.Reclaim(t.Context(), identity.Anew(next, anew), w.markers()))
	lost, err := identity.Lost(t.Context(), w.d, "v1", w.db["v1"])
	w.ok(err)
	e, err = identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	again, err := e.MadeAnew(w.d)
	w.ok(err)
	if len(lost) != 1 || len(again) != 1 || again[0] != anew[0] {
		t.Errorf("lost are %v, made anew %+v, want %+v", lost, again, anew)
	}
	if lost, err := identity.Lost(t.Context(), next, "v1", w.db["v1"]); err != nil || len(lost) > 0 {
		t.Errorf("lost after it was accepted: %v, %v", lost, err)
	}
}
