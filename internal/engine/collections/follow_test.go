package collections

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// token is where a version has its kind now.
func (w *shapeWorld) token(version string) record.Token { return syncer.TokenOf(w.kind(version)) }

// reshape has the application drop indexes of the active version, and make others.
func (w *shapeWorld) reshape(version string, drop []string, make ...bson.D) {
	w.t.Helper()
	spec := record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Options: w.shape(version).Options}}
	w.check(w.db[version].Reshape(w.t.Context(), w.token(version), spec, drop))
	for _, s := range make {
		raw, err := bson.Marshal(s)
		w.check(err)
		spec.Shape.Indexes = append(spec.Shape.Indexes, raw)
	}
	w.check(w.db[version].BuildIndexes(w.t.Context(), w.token(version), spec))
}

// flip takes the upgrade that has begun to its end, as controllers do.
func (w *shapeWorld) flip() {
	w.t.Helper()
	for w.record().Upgrade != nil || !w.opened() {
		acts := upgradestate.Actions(w.record())
		if len(acts) == 0 {
			w.t.Fatal("nothing is left to do")
		}
		for _, a := range acts {
			var ev upgradestate.Event
			switch a := a.(type) {
			case upgradestate.Hold:
				ev = upgradestate.Held{ID: a.ID}
			case upgradestate.AwaitReports:
				ev = upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards}
			case upgradestate.Execute:
				f := record.Fence{Class: record.FenceClass(a.Class), Token: syncer.TokenAt(a.Place), To: a.Pending.To, Restore: a.Restore}
				w.check(w.db[a.Version].Fence(w.t.Context(), f))
				ev = upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}
			case upgradestate.Unfence:
				tok := syncer.TokenAt(a.Place)
				tok.Name = a.To
				w.check(w.db[a.Version].Unfence(w.t.Context(), record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.From, Restore: a.Restore}))
				ev = upgradestate.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From}
			case upgradestate.Event:
				ev = a
			default:
				w.t.Fatalf("unexpected action %T", a)
			}
			_, err := w.store.Apply(w.t.Context(), ev)
			w.check(err)
		}
	}
}

func (w *shapeWorld) opened() bool {
	k := w.kind(w.record().CurrentVersion)
	return !k.Hidden && k.Pending == nil
}

// TestExpiryOfZero: an index that deletes at the time that a record holds (0 seconds) is noted and
// deletes again, like any other.
func TestExpiryOfZero(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 0))
	d := w.ready(w.begin("u1"))
	w.check(w.keep.StopExpiry(t.Context(), d))
	w.want("stopped", "v1", seconds{"at_1": record.NeverExpires}, seconds{"at_1": 0})
	w.abort("u1")
	w.check(w.keep.recheckExpiry(t.Context()))
	w.want("aborted", "v1", seconds{"at_1": 0}, nil)
	_, err := w.keep.completeIndexes(t.Context(), w.record(), "v2")
	w.check(err)
	if have := w.kind("v2").Expiry; !maps.Equal(have, seconds{"at_1": 0}) {
		t.Errorf("of the target is noted %v", have)
	}
}

// TestExpiryStoppedByTheApplication: a TTL index that the application itself keeps from deleting
// while it is copied does not delete after the switch either. A controller that read the record
// before the switch stopped the index does not take that for the application's doing.
func TestExpiryStoppedByTheApplication(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60), ttlIndex("seen", 5))
	w.copied()
	w.lacks("")
	w.want("copied", "v2", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, seconds{"at_1": 60, "seen_1": 5})
	w.expire("v1", seconds{"at_1": record.NeverExpires})
	w.lacks("")
	noted := seconds{"at_1": record.NeverExpires, "seen_1": 5}
	w.want("stopped by the application", "v2", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, noted)

	d := w.ready(w.begin("u1"))
	w.check(w.keep.StopExpiry(t.Context(), d))
	_, err := w.keep.completeIndexes(t.Context(), d, "v2") // by the record from before
	w.check(err)
	w.want("by an older record", "v2", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, noted)
	w.flip()
	w.check(w.keep.recheckExpiry(t.Context()))
	w.want("after the switch", "v2", noted, nil)
}

// TestIndexesFollowTheSource: what the source drops, hides, shows again or makes anew while it is copied
// becomes of the target, too, and what an operator has made there stays. A TTL index that was dropped does
// not wake up at the switch.
func TestIndexesFollowTheSource(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60), plainIndex("n", false))
	w.lacks("built once everything is copied")
	w.copied()
	w.lacks("")
	w.indexes("at_1", "n_1")
	raw, err := bson.Marshal(plainIndex("own", false))
	w.check(err)
	w.check(w.db["v2"].BuildIndexes(t.Context(), w.token("v2"), record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Indexes: []bson.Raw{raw}}}))

	d := w.ready(w.begin("u1"))
	w.reshape("v1", []string{"at_1"})
	if err := w.keep.CheckIndexes(t.Context(), d); err == nil || !strings.Contains(err.Error(), "index at_1 of sessions, which the source no longer has") {
		t.Errorf("a switch would begin: %v", err)
	}
	w.lacks("")
	w.indexes("n_1", "own_1")
	w.check(w.keep.CheckIndexes(t.Context(), w.record()))

	hidden := append(plainIndex("n", false), bson.E{Key: "hidden", Value: true})
	w.reshape("v1", []string{"n_1"}, hidden)
	w.lacks("index n_1 of sessions, which the source has changed: it is rebuilt")
	w.indexes("n_1", "own_1") // the shards take their reports back first
	_, err = w.store.Apply(t.Context(), upgradestate.Withdraw{ID: "u1", Shards: []int{1}})
	w.check(err)
	w.lacks("it is rebuilt")
	w.lacks("")
	is := func(hidden bool) {
		t.Helper()
		i := slices.IndexFunc(w.shape("v2").Indexes, func(ix bson.Raw) bool { return record.IndexName(ix) == "n_1" })
		if ix := w.shape("v2").Indexes[i]; ix.Lookup("hidden").IsZero() == hidden {
			t.Errorf("the target has %v", ix)
		}
		w.check(w.keep.CheckIndexes(t.Context(), w.record()))
	}
	is(true)
	w.reshape("v1", []string{"n_1"}, plainIndex("n", false)) // shown again
	w.lacks("it is rebuilt")
	w.lacks("")
	is(false)

	w.reshape("v1", []string{"n_1"})
	w.lacks("")
	w.indexes("own_1")
	if got := w.kind("v2").Carried; len(got) != 0 {
		t.Errorf("carried are %v", got)
	}
}

// TestIndexDroppedWhileItIsCopied: the source drops a TTL index that the target was to have once
// everything is copied. Nothing is left of it that would hold up the switch.
func TestIndexDroppedWhileItIsCopied(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60), ttlIndex("seen", 5))
	w.lacks("built once everything is copied")
	w.reshape("v1", []string{"at_1"})
	w.lacks("built once everything is copied")
	w.copied()
	w.lacks("")
	w.indexes("seen_1")
	if got := w.kind("v2").Carried; !slices.Equal(got, []string{"seen_1"}) {
		t.Errorf("carried are %v", got)
	}
	d := w.ready(w.begin("u1"))
	w.check(w.keep.CheckIndexes(t.Context(), d))
	w.check(w.keep.StopExpiry(t.Context(), d))
	w.check(w.keep.CheckSealed(t.Context(), w.record()))
}

// TestOptionsFollowTheSource: what an application makes of its collection's validator and pre-images, one
// option at a time, becomes the target's.
func TestOptionsFollowTheSource(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t)
	w.lacks("")
	d := w.begin("u1")
	validator := bson.E{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}}
	for _, tc := range []struct {
		what    string
		options bson.D
	}{
		{"validator", bson.D{validator}},
		{"validationLevel", bson.D{validator, {Key: "validationLevel", Value: "moderate"}}},
		{"validationAction", bson.D{validator, {Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: "warn"}}},
		{"changeStreamPreAndPostImages", bson.D{validator, {Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}}}},
		{"validator", bson.D{{Key: "validator", Value: bson.D{}}}},
	} {
		options, err := bson.Marshal(tc.options)
		w.check(err)
		spec := record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Options: options}}
		w.check(w.db["v1"].Reshape(t.Context(), w.token("v1"), spec, nil))
		source := w.shape("v1").Options
		if err := w.keep.CheckIndexes(t.Context(), d); err == nil || !strings.Contains(err.Error(), tc.what) || !strings.Contains(err.Error(), "of the source in sessions") {
			t.Errorf("%v: a switch would begin: %v", tc.options, err)
		}
		w.lacks("")
		if diff := record.DifferentOptions(w.shape("v2").Options, source); len(diff) > 0 {
			t.Errorf("%v: the target differs in %v", tc.options, diff)
		}
		w.check(w.keep.CheckIndexes(t.Context(), d))
	}
}

// TestExpiryFollowsAfterTheSwitch: what the application makes of its TTL indexes after the switch
// holds after a rollback, too. One that it has dropped does not delete what it means to keep.
func TestExpiryFollowsAfterTheSwitch(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60), ttlIndex("seen", 5), ttlIndex("mail", 7))
	ctx := t.Context()
	w.copied()
	w.lacks("")
	w.check(w.keep.StopExpiry(ctx, w.ready(w.begin("u1"))))
	w.flip()
	w.check(w.keep.recheckExpiry(ctx))
	all := seconds{"at_1": 60, "seen_1": 5, "address_1": 7}
	w.want("after the switch", "v2", all, nil)
	w.want("after the switch", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires, "mail_1": record.NeverExpires}, seconds{"at_1": 60, "seen_1": 5, "mail_1": 7})

	w.reshape("v2", []string{"address_1"})
	w.expire("v2", seconds{"seen_1": 500})
	w.check(w.keep.recheckExpiry(ctx))
	w.want("changed in v2", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires, "mail_1": record.NeverExpires},
		seconds{"at_1": 60, "seen_1": 500, "mail_1": record.NeverExpires})
}

// TestIndexDroppedRightAfterTheTargetIsMade: an index that the target is made with, and that the source
// drops before anybody has looked at the target, goes there too.
func TestIndexDroppedRightAfterTheTargetIsMade(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", true))
	w.indexes("n_1")
	w.reshape("v1", []string{"n_1"})
	w.lacks("")
	w.indexes()
}
