package collections

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

func plainIndex(field string, unique bool) bson.D {
	d := bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: field, Value: int32(1)}}}, {Key: "name", Value: field + "_1"}}
	if unique {
		d = append(d, bson.E{Key: "unique", Value: true})
	}
	return d
}

// copied stores that everything is copied.
func (w *shapeWorld) copied() {
	w.t.Helper()
	key := syncer.Key(1, w.dir, 0)
	pos, err := w.db["v1"].Position(w.t.Context())
	w.check(err)
	_, err = w.store.CreatePlan(w.t.Context(), key, syncer.Plan{Start: pos, Ranges: map[string][]record.Range{shapeKind: {{}}}})
	w.check(err)
	w.check(w.store.SaveCheckpoints(w.t.Context(), key, map[int]syncer.Checkpoint{0: {Position: pos, Done: []string{shapeKind + "/0"}}}))
	if _, followed := upgradestate.Followed(w.record()); !followed {
		_, err := w.store.Apply(w.t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash(), Precopied: true}})
		w.check(err)
	}
	seen, _ := upgradestate.ImagesOf(w.record(), "v2")
	d, err := w.store.Apply(w.t.Context(), upgradestate.FenceLoaders{Version: "v2", Seen: seen})
	w.check(err)
	for _, a := range upgradestate.Actions(d) {
		if a, ok := a.(upgradestate.Execute); ok {
			w.check(w.db["v2"].Fence(w.t.Context(), record.Fence{
				Class: record.FenceClass(a.Class), Token: syncer.TokenAt(a.Place), To: a.Pending.To,
			}))
			_, err = w.store.Apply(w.t.Context(), upgradestate.Confirmed{Version: "v2", Kind: a.Place.Kind, To: a.Pending.To})
			w.check(err)
		}
	}
}

// lacks looks once and wants what is missing to be said so; "" is nothing.
func (w *shapeWorld) lacks(want string) {
	w.t.Helper()
	lacks, err := w.keep.completeIndexes(w.t.Context(), w.record(), "v2")
	w.check(err)
	if want == "" && lacks != "" || !strings.Contains(lacks, want) {
		w.t.Errorf("lacks %q, want %q", lacks, want)
	}
}

func (w *shapeWorld) indexes(want ...string) {
	w.t.Helper()
	var have []string
	for _, spec := range w.shape("v2").Indexes {
		have = append(have, record.IndexName(spec))
	}
	if strings.Join(have, " ") != strings.Join(want, " ") {
		w.t.Errorf("indexes %v, want %v", have, want)
	}
}

// TestIndexesOfTheTarget: what refuses records is there before the copy, the rest after it,
// and before a switch everything.
func TestIndexesOfTheTarget(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("mail", true), plainIndex("n", false))
	w.indexes("address_1")
	w.lacks("index n_1 of sessions, which is built once everything is copied")
	w.indexes("address_1")
	if err := w.keep.CheckIndexes(t.Context(), w.begin("u1")); err == nil || !strings.Contains(err.Error(), "n_1") {
		t.Errorf("a switch would begin: %v", err)
	}
	w.copied()
	w.lacks("")
	w.indexes("address_1", "n_1")
	w.check(w.keep.CheckIndexes(t.Context(), w.record()))

	// The application makes another one, which takes the reports back before it is built.
	w.index(plainIndex("m", false))
	w.ready(w.record())
	w.lacks("index m_1 of sessions, which is missing, and built before the switch begins")
	w.indexes("address_1", "n_1")
	if err := w.keep.CheckIndexes(t.Context(), w.record()); err == nil || !strings.Contains(err.Error(), "m_1") {
		t.Errorf("a switch would begin: %v", err)
	}
	_, err := w.store.Apply(t.Context(), upgradestate.Withdraw{ID: "u1", Shards: []int{1}})
	w.check(err)
	paused, reason := true, "test"
	_, err = w.store.Apply(t.Context(), upgradestate.SetPace{Paused: &paused, Reason: &reason})
	w.check(err)
	w.lacks("built when the pause ends")
	paused = false
	_, err = w.store.Apply(t.Context(), upgradestate.SetPace{Paused: &paused})
	w.check(err)
	w.lacks("")
	w.indexes("address_1", "n_1", "m_1")
	w.check(w.keep.CheckIndexes(t.Context(), w.record()))
}

// TestDeclaredIndexesOfTheTarget: no switch begins before the target has the indexes of the fields
// that it declares, and the version that is left keeps its own.
func TestDeclaredIndexesOfTheTarget(t *testing.T) {
	t.Parallel()
	w := newShapeWorldOf(t, func(s *transform.Spec) {
		s.Old.Kinds[0].Fixed, s.New.Kinds[0].Fixed = false, false
		s.Old.Kinds[0].Indexed, s.New.Kinds[0].Indexed = []string{"mail"}, []string{"address"}
	})
	w.check(w.keep.buildActive(t.Context(), w.record()))
	w.lacks("index dbc_by_address of sessions, which is built once everything is copied")
	w.indexes()
	if err := w.keep.CheckIndexes(t.Context(), w.begin("u1")); err == nil || !strings.Contains(err.Error(), "dbc_by_address") {
		t.Errorf("a switch would begin: %v", err)
	}
	w.copied()
	w.lacks("")
	w.indexes("dbc_by_address")
	w.check(w.keep.CheckIndexes(t.Context(), w.record()))
	if left := names(w.shape("v1").Indexes); len(left) != 1 || left[0] != "dbc_by_mail" {
		t.Errorf("v1 has the indexes %v", left)
	}
}

// TestIndexThatDiffers: another index under a declared name is named, with what to do.
func TestIndexThatDiffers(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", false))
	k := w.kind("v2")
	other := plainIndex("m", false)
	other[2].Value = "n_1"
	raw, err := bson.Marshal(other)
	w.check(err)
	w.check(w.db["v2"].BuildIndexes(t.Context(), record.Token{Kind: shapeKind, Name: k.Physical, ID: k.ID},
		record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Indexes: []bson.Raw{raw}}}))
	w.copied()
	if _, err := w.keep.completeIndexes(t.Context(), w.record(), "v2"); err == nil || !strings.Contains(err.Error(), "index n_1 exists and differs") {
		t.Errorf("error %v", err)
	}
	if err := w.keep.CheckIndexes(t.Context(), w.begin("u1")); err == nil {
		t.Error("a switch would begin")
	}
}

// TestIndexesBeforeALook: nothing is known of a direction that was not looked at yet.
func TestIndexesBeforeALook(t *testing.T) {
	t.Parallel()
	var x indexing
	d := upgradestate.Deployment{Epoch: 3}
	if x.get(3, "v2") == "" {
		t.Error("ready before a look")
	}
	x.set(d, "v2", "")
	if x.get(3, "v2") != "" || x.get(4, "v2") == "" || x.get(3, "v3") == "" {
		t.Error("a look counts for its direction alone")
	}
}

// TestIndexesSurviveFailures: whichever command fails or loses its answer, a controller that checks
// next completes the indexes.
func TestIndexesSurviveFailures(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		for at := 1; ; at++ {
			w := newShapeWorld(t, plainIndex("mail", true), plainIndex("n", false), ttlIndex("at", 60))
			w.copied()
			failing := &nth{left: at, lost: lost}
			for v, ns := range w.db {
				w.at[v] = faultstore.Wrap(ns, failing)
			}
			d := w.record()
			_, failed := w.keep.completeIndexes(t.Context(), d, "v2")
			failing.left = 0
			w.lacks("")
			w.want("completed", "v2", seconds{"at_1": record.NeverExpires}, seconds{"at_1": 60})
			w.check(w.keep.CheckIndexes(t.Context(), w.begin("u1")))
			if failed == nil {
				break // there is no such command
			}
		}
	}
}

// TestShardKeyIndexStaysBehind: the hashed index of _id, which a source has because it is
// sharded by it, is not asked of the target.
func TestShardKeyIndexStaysBehind(t *testing.T) {
	t.Parallel()
	hashed := bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}}, {Key: "name", Value: "_id_hashed"}}
	w := newShapeWorld(t, hashed, plainIndex("n", false))
	w.copied()
	w.lacks("")
	w.indexes("n_1")
	w.check(w.keep.CheckIndexes(t.Context(), w.begin("u1")))
}

// deaf is a database that says it has built indexes and has not.
type deaf struct{ Database }

func (deaf) BuildIndexes(context.Context, record.Token, record.KindSpec) error { return nil }

// TestIndexThatIsNeverBuilt: whatever holds a switch up is said.
func TestIndexThatIsNeverBuilt(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", false))
	w.copied()
	w.at["v2"] = deaf{w.db["v2"]}
	w.lacks("index n_1 of sessions, which the database has not built on request")
}

// TestIndexesOfWhatHasMoved: a look that began before a switch finds collections under other
// names after it. That is no fault of the databases, and nobody is warned of it; the same
// without a switch is one.
func TestIndexesOfWhatHasMoved(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", false))
	d, k := w.record(), w.kind("v2")
	f := record.Fence{Token: record.Token{Kind: shapeKind, Name: k.Physical, ID: k.ID}, Class: record.FenceUUID, To: shapeKind + ".n9"}
	w.check(w.db["v2"].Fence(t.Context(), f))
	_, err := w.keep.completeIndexes(t.Context(), d, "v2")
	if err == nil {
		t.Fatal("indexes are completed on a collection that has another name")
	}
	if w.keep.moved(t.Context(), d, err) {
		t.Errorf("nothing was switched, and it passes for that: %v", err)
	}
	paused, reason := true, "a change of the record"
	_, applyErr := w.store.Apply(t.Context(), upgradestate.SetPace{Paused: &paused, Reason: &reason})
	w.check(applyErr)
	if !w.keep.moved(t.Context(), d, err) {
		t.Errorf("somebody is warned of it: %v", err)
	}
}
