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

// flipped is a world whose v2 is served and followed by v1.
func flipped(t *testing.T, indexes ...bson.D) *shapeWorld {
	t.Helper()
	w := newShapeWorld(t, indexes...)
	w.copied()
	w.lacks("")
	w.check(w.keep.StopExpiry(t.Context(), w.ready(w.begin("u1"))))
	w.flip()
	w.check(w.keep.recheckExpiry(t.Context()))
	back, err := w.keep.Registry.Direction("v2", "v1")
	w.check(err)
	_, err = w.store.Apply(t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: back.Hash()}})
	w.check(err)
	return w
}

func hidden(index bson.D) bson.D {
	return append(slices.Clone(index), bson.E{Key: "hidden", Value: true})
}

// back follows, and compares what v1 has then, and what it lacks.
func (w *shapeWorld) back(when string, lacks []string, indexes ...string) {
	w.t.Helper()
	for range 2 { // the second look finds nothing to do
		got, err := w.keep.followBack(w.t.Context(), w.record())
		w.check(err)
		if len(got) != len(lacks) {
			w.t.Errorf("%s: lacks %q, want %q", when, got, lacks)
			return
		}
		for i, text := range lacks {
			if !strings.Contains(got[i], text) || !strings.Contains(got[i], w.kind("v1").Physical+" of v1") {
				w.t.Errorf("%s: lacks %q, want %q", when, got[i], text)
			}
		}
		var have []string
		for _, ix := range w.shape("v1").Indexes {
			text := record.IndexName(ix)
			if record.IsUnique(ix) {
				text += " unique"
			}
			if !ix.Lookup("hidden").IsZero() {
				text += " hidden"
			}
			have = append(have, text)
		}
		slices.Sort(have)
		if !slices.Equal(have, indexes) {
			w.t.Errorf("%s: v1 has %q, want %q", when, have, indexes)
		}
	}
}

// TestOldVersionFollowsAfterTheSwitch: what applications make of indexes in the active version
// comes to the version that was left, as far as it decides what a rollback finds. verify names
// each difference until then, and an upgrade that runs builds nothing.
func TestOldVersionFollowsAfterTheSwitch(t *testing.T) {
	t.Parallel()
	w := flipped(t, plainIndex("n", false), plainIndex("mail", true), ttlIndex("at", 60))
	all := []string{"at_1", "mail_1 unique", "n_1"}
	w.back("after the switch", nil, all...)

	w.reshape("v2", nil, plainIndex("added", false), plainIndex("key", true), ttlIndex("seen", 9))
	differ, lacks, err := w.keep.Differences(t.Context(), w.record(), "v1")
	w.check(err)
	if len(differ) != 3 || len(lacks) != 0 || !strings.Contains(strings.Join(differ, "; "), "index key_1 of the active version is missing") {
		t.Errorf("differ %q, lacks %q", differ, lacks)
	}
	all = []string{"added_1", "at_1", "key_1 unique", "mail_1 unique", "n_1", "seen_1"}
	w.back("created", nil, all...)
	w.want("created", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, seconds{"at_1": 60, "seen_1": 9})
	if differ, _, err := w.keep.Differences(t.Context(), w.record(), "v1"); err != nil || len(differ) > 0 {
		t.Errorf("followed, and differ %q, %v", differ, err)
	}

	w.reshape("v2", []string{"n_1", "added_1", "address_1"})
	all = []string{"at_1", "key_1 unique", "n_1", "seen_1"} // v1's applications look records up by n
	w.back("dropped", nil, all...)

	w.reshape("v2", []string{"key_1"}, plainIndex("key", false))
	all[1] = "key_1"
	w.back("unique no longer", nil, all...)

	w.reshape("v2", nil, plainIndex("address.street", false), hidden(plainIndex("m", false)))
	w.back("of a field that has another name, hidden", nil, "at_1", "key_1", "m_1 hidden", "mail.street_1", "n_1", "seen_1")

	w.reshape("v2", nil, plainIndex("mail", false)) // nothing of v1 is called so in v2
	w.back("of a field that v1 cannot have", []string{"index mail_1 of the active version"}, "at_1", "key_1", "m_1 hidden", "mail.street_1", "n_1", "seen_1")

	_, err = w.store.Apply(t.Context(), upgradestate.Begin{ID: "u2", TargetVersion: "v1"})
	w.check(err)
	w.reshape("v2", nil, plainIndex("late", false))
	w.back("while a rollback runs", []string{"index mail_1 of the active version", "index late_1 of the active version is missing"},
		"at_1", "key_1", "m_1 hidden", "mail.street_1", "n_1", "seen_1")
}

// TestOldVersionFollowsOptions: a validator follows back, and one that v1 cannot have is named.
func TestOldVersionFollowsOptions(t *testing.T) {
	t.Parallel()
	w := flipped(t)
	set := func(field string) {
		t.Helper()
		options, err := bson.Marshal(bson.D{{Key: "validator", Value: bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}}}, {Key: "validationLevel", Value: "moderate"}})
		w.check(err)
		w.check(w.db["v2"].Reshape(t.Context(), w.token("v2"), record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Options: options}}, nil))
	}
	set("n")
	w.back("followed", nil)
	if differ := record.DifferentOptions(w.shape("v1").Options, w.shape("v2").Options); len(differ) > 0 {
		t.Errorf("v1 differs in %v", differ)
	}
	set("address")
	w.back("of a field of v2", []string{"the options of the active version: the validator uses"})
	if differ := record.DifferentOptions(w.shape("v1").Options, w.shape("v2").Options); len(differ) != 1 {
		t.Errorf("v1 differs in %v", differ)
	}
}

// TestExpiryStoppedAfterAnAbort: an index that the application stops after an upgrade was given up
// stays stopped, though the upgrade had noted what it did before.
func TestExpiryStoppedAfterAnAbort(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60))
	ctx := t.Context()
	d := w.ready(w.begin("u1"))
	w.check(w.keep.StopExpiry(ctx, d))
	w.abort("u1")
	w.check(w.keep.recheckExpiry(ctx))
	w.want("aborted", "v1", seconds{"at_1": 60}, nil)
	w.expire("v1", seconds{"at_1": record.NeverExpires})
	w.check(w.keep.recheckExpiry(ctx))
	w.want("stopped by the application", "v1", seconds{"at_1": record.NeverExpires}, nil)

	// A process that read the record before the abort, and sleeps over it, stops the index late: its
	// note stays, and the index goes on.
	w.expire("v1", seconds{"at_1": 60})
	w.check(w.keep.StopExpiry(ctx, d))
	w.want("stopped late", "v1", seconds{"at_1": record.NeverExpires}, seconds{"at_1": 60})
	w.check(w.keep.recheckExpiry(ctx))
	w.want("goes on", "v1", seconds{"at_1": 60}, nil)
}

// TestDifferencesAreNamed: each difference of a target's collection from its source's is named with the
// collection, in what it differs.
func TestDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, plainIndex("n", false), plainIndex("mail", true), ttlIndex("at", 60), plainIndex("gone", false))
	w.copied()
	w.lacks("")
	if differ, lacks, err := w.keep.Differences(t.Context(), w.record(), "v2"); err != nil || len(differ)+len(lacks) > 0 {
		t.Fatalf("differ %q, lack %q, %v", differ, lacks, err)
	}
	// The target loses one index, has another one by its name, and the source changes.
	spec := record.KindSpec{Name: shapeKind, Fixed: true}
	w.check(w.db["v2"].Reshape(t.Context(), w.token("v2"), spec, []string{"n_1", "address_1"}))
	raw, err := bson.Marshal(plainIndex("address", false))
	w.check(err)
	spec.Shape.Indexes = []bson.Raw{raw}
	w.check(w.db["v2"].BuildIndexes(t.Context(), w.token("v2"), spec))
	w.expire("v2", seconds{"at_1": 5})
	w.expire("v1", seconds{"at_1": 70})
	options, err := bson.Marshal(bson.D{{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}}})
	w.check(err)
	w.check(w.db["v1"].Reshape(t.Context(), w.token("v1"), record.KindSpec{Name: shapeKind, Fixed: true, Shape: record.Shape{Options: options}}, []string{"gone_1"}))

	differ, _, err := w.keep.Differences(t.Context(), w.record(), "v2")
	w.check(err)
	want := []string{
		"TTL index at_1 deletes after 5 s already",
		"index address_1 differs: it lacks unique: true", "index gone_1 no longer exists in the source", "index n_1 is missing", "its validator differs from the source",
		"the recorded expiry of TTL index at_1 is not the 70 s of the source",
	}
	for i := range want {
		want[i] = "sessions (collection " + w.kind("v2").Physical + " of v2): " + want[i]
	}
	if !slices.Equal(differ, want) {
		t.Errorf("differ %q, want %q", differ, want)
	}
}

// failingBuild is a database that builds no index while it fails.
type failingBuild struct {
	Database
	fails *bool
}

func (f failingBuild) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	if *f.fails {
		return errors.New("two records have the same key")
	}
	return f.Database.BuildIndexes(ctx, tok, kind)
}

// TestChangedIndexFollowsAtOnce: an index that could not be built is tried again after a minute. One
// that the application has made differently since, under the same name, is tried at once.
func TestChangedIndexFollowsAtOnce(t *testing.T) {
	t.Parallel()
	w := flipped(t)
	fails := true
	w.at["v1"] = failingBuild{w.db["v1"], &fails}
	follow := func() string {
		t.Helper()
		lacks, err := w.keep.followBack(t.Context(), w.record())
		w.check(err)
		return strings.Join(lacks, "; ")
	}
	w.reshape("v2", nil, plainIndex("u", true))
	if got := follow(); !strings.Contains(got, "two records have the same key") {
		t.Errorf("it cannot be built, and lacks %q", got)
	}
	fails = false
	if got := follow(); !strings.Contains(got, "retrying within a minute") {
		t.Errorf("the same index is tried at once: lacks %q", got)
	}
	w.reshape("v2", []string{"u_1"}, append(plainIndex("u", true), bson.E{Key: "sparse", Value: true}))
	if got := follow(); got != "" {
		t.Errorf("another index of that name waits: lacks %q", got)
	}
}
