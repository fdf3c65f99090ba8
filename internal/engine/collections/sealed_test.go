package collections

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// validate has the application set a validator of its collection.
func (w *shapeWorld) validate(version, field string) {
	w.t.Helper()
	options, err := bson.Marshal(bson.D{{Key: "validator", Value: bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}}}})
	w.check(err)
	w.check(w.db[version].Reshape(w.t.Context(), w.token(version), record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Options: options}}, nil))
}

// again gives the attempt up and has the next one begin once the target has followed.
func (w *shapeWorld) again() {
	w.t.Helper()
	ctx := w.t.Context()
	w.abort("u1")
	w.check(w.keep.recheckExpiry(ctx))
	for range 3 { // an index that has another form is dropped, and then built
		if lacks, err := w.keep.completeIndexes(ctx, w.record(), "v2"); err == nil && lacks == "" {
			break
		}
	}
	w.check(w.keep.CheckIndexes(ctx, w.ready(w.begin("u2"))))
	w.check(w.keep.StopExpiry(ctx, w.record()))
	w.check(w.keep.CheckSealed(ctx, w.record()))
}

// TestShapeChangedRightBeforeTheFence: what the source's shape becomes after the last look at it ends
// the attempt, in one line that names it. The next one takes the change along.
func TestShapeChangedRightBeforeTheFence(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(w *shapeWorld)
		want   string // "": the attempt goes on
	}{
		"nothing":     {func(*shapeWorld) {}, ""},
		"made":        {func(w *shapeWorld) { w.reshape("v1", nil, plainIndex("m", false)) }, "index m_1 is missing"},
		"made unique": {func(w *shapeWorld) { w.reshape("v1", []string{"n_1"}, plainIndex("n", true)) }, "index n_1 differs: it lacks unique: true"},
		"hidden":      {func(w *shapeWorld) { w.reshape("v1", []string{"n_1"}, hidden(plainIndex("n", false))) }, "index n_1 differs: it lacks hidden: true"},
		"dropped":     {func(w *shapeWorld) { w.reshape("v1", []string{"n_1"}) }, "index n_1 no longer exists in the source"},
		"validator":   {func(w *shapeWorld) { w.validate("v1", "n") }, "its validator differs from the source"},
		"TTL dropped": {func(w *shapeWorld) { w.reshape("v1", []string{"mail_1"}) }, "TTL index address_1 of v2/sessions would delete after 60 s"},
		"TTL made":    {func(w *shapeWorld) { w.reshape("v1", nil, ttlIndex("seen", 5)) }, "TTL index seen_1 of v1/sessions deletes after 5 s"},
		"TTL sparse": {func(w *shapeWorld) {
			w.reshape("v1", []string{"mail_1"}, append(ttlIndex("mail", record.NeverExpires), bson.E{Key: "sparse", Value: true}))
		}, "index address_1 differs: it lacks sparse: true"},
		// These need the look at the target behind the fence: the source is as it was.
		"target's index dropped": {func(w *shapeWorld) { w.reshape("v2", []string{"n_1"}) }, "index n_1 is missing"},
		"target's index hidden":  {func(w *shapeWorld) { w.reshape("v2", []string{"n_1"}, hidden(plainIndex("n", false))) }, "index n_1 differs: it has hidden: true"},
		"target's validator":     {func(w *shapeWorld) { w.validate("v2", "n") }, "its validator differs from the source"},
		"TTL otherwise": {func(w *shapeWorld) {
			w.expire("v1", seconds{"mail_1": 61})
		}, "TTL index mail_1 of v1/sessions deletes after 61 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			w := newShapeWorld(t, plainIndex("n", false), ttlIndex("mail", 60))
			w.copied()
			w.lacks("")
			d := w.ready(w.begin("u1"))
			w.check(w.keep.CheckIndexes(ctx, d))
			w.check(w.keep.StopExpiry(ctx, d))
			tc.change(w)
			switch err := w.keep.CheckSealed(ctx, w.record()); {
			case tc.want == "":
				w.check(err)
			case !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v, want %s", err, tc.want)
			}
			w.again()
		})
	}
}

// TestTTLIndexDroppedBetweenTwoLooks: one that the source drops between the look at indexes and the one
// that stops them is seen, too.
func TestTTLIndexDroppedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("mail", 60))
	w.copied()
	w.lacks("")
	d := w.ready(w.begin("u1"))
	w.check(w.keep.CheckIndexes(t.Context(), d))
	w.reshape("v1", []string{"mail_1"})
	w.check(w.keep.StopExpiry(t.Context(), d))
	if err := w.keep.CheckSealed(t.Context(), w.record()); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "address_1") {
		t.Fatalf("the switch goes on: %v", err)
	}
	w.again()
}

// TestShapeChangedRightBeforeTheFenceOfARollback: TTL indexes are taken along, for they would delete.
// What a rollback lacks otherwise holds up nothing.
func TestShapeChangedRightBeforeTheFenceOfARollback(t *testing.T) {
	t.Parallel()
	w := flipped(t, ttlIndex("mail", 60))
	_, err := w.store.Apply(t.Context(), upgradestate.Begin{ID: "u2", TargetVersion: "v1"})
	w.check(err)
	d := w.ready(w.record())
	w.check(w.keep.StopExpiry(t.Context(), d))
	w.reshape("v2", nil, plainIndex("m", false))
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
	w.reshape("v2", []string{"address_1"})
	if err := w.keep.CheckSealed(t.Context(), w.record()); !errors.Is(err, ErrChanged) {
		t.Fatalf("the rollback goes on: %v", err)
	}
	w.check(w.keep.StopExpiry(t.Context(), w.record())) // which looks once more
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
	w.want("followed", "v1", seconds{"mail_1": record.NeverExpires}, seconds{"mail_1": record.NeverExpires})
}

// TestShapeChangedRightBeforeTheFenceOfTheNextUpgrade: after a rollback the version that was left is the
// newer one again, and follows.
func TestShapeChangedRightBeforeTheFenceOfTheNextUpgrade(t *testing.T) {
	t.Parallel()
	w := flipped(t, ttlIndex("mail", 60))
	_, err := w.store.Apply(t.Context(), upgradestate.Begin{ID: "u2", TargetVersion: "v1"})
	w.check(err)
	w.check(w.keep.StopExpiry(t.Context(), w.ready(w.record())))
	w.flip()
	w.check(w.keep.recheckExpiry(t.Context()))
	_, err = w.store.Apply(t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash()}})
	w.check(err)
	d := w.ready(w.begin("u3"))
	w.check(w.keep.CheckIndexes(t.Context(), d))
	w.check(w.keep.StopExpiry(t.Context(), w.record()))
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
	w.reshape("v1", []string{"mail_1"}, plainIndex("m", false))
	if err := w.keep.CheckSealed(t.Context(), w.record()); !errors.Is(err, ErrChanged) {
		t.Errorf("the switch goes on: %v", err)
	}
}

// listing is a database that lists an index otherwise than it was asked for, as defaults are.
type listing struct{ Database }

func (l listing) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	info, err := l.Database.Describe(ctx, kind, name)
	info.Shape.Indexes = slices.Clone(info.Shape.Indexes)
	for i, ix := range info.Shape.Indexes {
		var spec bson.D
		if bson.Unmarshal(ix, &spec) == nil {
			info.Shape.Indexes[i], _ = bson.Marshal(append(spec, bson.E{Key: "filled", Value: "in"}))
		}
	}
	return info, err
}

// TestIndexThatIsListedOtherwise: an index that is the same to the database holds up no switch, however
// it lists it.
func TestIndexThatIsListedOtherwise(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", false), plainIndex("mail", true))
	w.copied()
	w.lacks("")
	d := w.ready(w.begin("u1"))
	w.at["v2"] = listing{w.db["v2"]}
	w.check(w.keep.CheckIndexes(t.Context(), d))
	w.check(w.keep.StopExpiry(t.Context(), d))
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
	w.reshape("v1", []string{"mail_1"}, plainIndex("mail", false))
	if err := w.keep.CheckSealed(t.Context(), w.record()); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "index address_1 differs") || strings.Contains(err.Error(), "n_1") {
		t.Errorf("got %v", err)
	}
}

// TestDeclaredIndexIsListedOtherwise: what the database fills in of a declared index is no difference.
func TestDeclaredIndexIsListedOtherwise(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t)
	raw, err := bson.Marshal(plainIndex("own", false))
	w.check(err)
	kinds := w.keep.Carry[[2]string{"v1", "v2"}]
	carry := kinds[shapeKind]
	carried := carry.Shape
	carry.Shape = func(s record.Shape) (record.Shape, error) {
		s, err := carried(s)
		s.Indexes = append([]bson.Raw{raw}, s.Indexes...)
		return s, err
	}
	kinds[shapeKind] = carry
	w.copied()
	w.lacks("")
	w.indexes("own_1")
	w.at["v2"] = listing{w.db["v2"]}
	if differ, lacks, err := w.keep.Differences(t.Context(), w.record(), "v2"); err != nil || len(differ)+len(lacks) > 0 {
		t.Errorf("differ %q, lack %q, %v", differ, lacks, err)
	}
	d := w.ready(w.begin("u1"))
	w.check(w.keep.CheckIndexes(t.Context(), d))
	w.check(w.keep.StopExpiry(t.Context(), d))
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
}
