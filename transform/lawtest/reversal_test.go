package lawtest_test

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// A result that does not give back what it was made of is an error of its group, which says
// what would be lost and shows no value.
func TestResultIsTakenBack(t *testing.T) {
	t.Parallel()
	inner := func(v any) bson.D { return bson.D{{Key: "list", Value: bson.A{1, bson.D{{Key: "n", Value: v}}}}} }
	src := []record.Record{
		named(t, "old", "k", bson.E{Key: "a", Value: "secret"}, bson.E{Key: "sub", Value: inner(int32(1))}),
	}
	back := func(more ...bson.E) transform.Func {
		return func(transform.Group, transform.Group) ([]record.Record, error) {
			return []record.Record{named(t, "old", "k", more...)}, nil
		}
	}
	same := []bson.E{{Key: "sub", Value: inner(int32(1))}, {Key: "a", Value: "secret"}} // in another order
	for name, tc := range map[string]struct {
		down      transform.Func
		needsHave bool
		want      string // empty: taken
	}{
		"the same":            {down: back(same...)},
		"a field less":        {down: back(same[:1]...), want: "old k would have another a"},
		"a field more":        {down: back(append(same, bson.E{Key: "b", Value: nil})...), want: "old k would have another b"},
		"another value":       {down: back(bson.E{Key: "a", Value: "other"}, same[0]), want: "old k would have another a"},
		"another type within": {down: back(same[1], bson.E{Key: "sub", Value: inner(int64(1))}), want: "old k would have another sub.list.1.n"},
		"a list turned": {down: back(same[1], bson.E{Key: "sub", Value: bson.D{{Key: "list", Value: bson.A{bson.D{{Key: "n", Value: int32(1)}}, 1}}}}),
			want: "old k would have another sub.list.0"},
		"a field twice": {down: back(same[0], same[1], same[1]), want: "number of fields of one name"},
		"gone":          {down: func(transform.Group, transform.Group) ([]record.Record, error) { return nil, nil }, want: "old k would be gone"},
		"one more": {down: func(src, have transform.Group) ([]record.Record, error) {
			out, err := back(same...)(src, have)
			return append(out, named(t, "old", "z")), err
		}, want: "old z was not there"},
		"an error": {down: func(transform.Group, transform.Group) ([]record.Record, error) { return nil, errors.New("nope") }, want: "cannot be taken back to v1: nope"},
		"a panic":  {down: func(transform.Group, transform.Group) ([]record.Record, error) { panic("no way") }, want: "panic: no way"},
		"the complement is the source": {needsHave: true, down: func(_, have transform.Group) ([]record.Record, error) {
			return have.Records, nil
		}},
		"no complement unless it is asked for": {down: func(_, have transform.Group) ([]record.Record, error) { return have.Records, nil }, want: "old k would be gone"},
	} {
		for _, reversal := range []transform.Reversal{transform.ReversalTried, transform.ReversalOwn, transform.ReversalNone} {
			s := plain("s", "old", "new")
			s.Down, s.DownNeedsHave, s.Reversal = tc.down, tc.needsHave, reversal
			up := direct(t, chain(t, []transform.Spec{s}), "v1", "v2")
			out, err := put(t, up, src, nil)
			switch {
			case tc.want == "" || reversal != transform.ReversalTried:
				if err != nil || len(out) != 1 {
					t.Errorf("%s (%d): %v, %v", name, reversal, out, err)
				}
			case err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret"):
				t.Errorf("%s: error is %v, want %q", name, err, tc.want)
			}
			if _, err := put(t, transform.Unchecked(up), src, nil); err != nil {
				t.Errorf("%s, unchecked: %v", name, err)
			}
		}
	}
}

// A chain tries the whole way if one of its steps is to be tried.
func TestChainIsTakenBack(t *testing.T) {
	t.Parallel()
	lossy := plain("s", "b", "c")
	lossy.Down = func(src, _ transform.Group) ([]record.Record, error) {
		return []record.Record{named(t, "b", src.Records[0].Key.String())}, nil
	}
	first := plain("s", "a", "b")
	first.Reversal = transform.ReversalOwn
	src := []record.Record{named(t, "a", "k", bson.E{Key: "n", Value: 1})}
	for reversal, want := range map[transform.Reversal]string{
		transform.ReversalTried: "a k would have another n", transform.ReversalOwn: "", transform.ReversalNone: "",
	} {
		lossy.Reversal = reversal
		up := direct(t, chain(t, []transform.Spec{first}, []transform.Spec{lossy}), "v1", "v3")
		_, err := put(t, up, src, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: error is %v, want %q", reversal, err, want)
		}
	}
}

func recordOf(t *testing.T, kind string, d bson.D) record.Record {
	t.Helper()
	doc, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: doc}
}

// That a transformer is one-way decides what is parked: controllers have to agree on it.
func TestOneWayIsPartOfTheHash(t *testing.T) {
	t.Parallel()
	hash := func(r transform.Reversal) string {
		s := plain("s", "old", "new")
		s.Reversal = r
		return direct(t, chain(t, []transform.Spec{s}), "v1", "v2").Hash()
	}
	if hash(transform.ReversalNone) == hash(transform.ReversalTried) || hash(transform.ReversalOwn) != hash(transform.ReversalTried) {
		t.Error("the hash does not distinguish one-way transformers from others")
	}
}

// Ids of every type that a collection can have go through; those that no server stores are
// refused as what they are.
func TestIDsOfAllTypes(t *testing.T) {
	t.Parallel()
	as := func(kind string) transform.Func {
		return func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				r.Kind = kind
				out = append(out, r)
			}
			return out, nil
		}
	}
	s := plain("s", "old", "new")
	s.Up, s.Down = as("new"), as("old")
	up := direct(t, chain(t, []transform.Spec{s}), "v1", "v2")
	for _, id := range []any{nil, bson.MinKey{}, bson.MaxKey{}, true, int32(1), "", bson.D{}, bson.ObjectID{1}, 1.5} {
		out, err := put(t, up, []record.Record{recordOf(t, "old", bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 1}})}, nil)
		if err != nil || len(out) != 1 {
			t.Errorf("_id %v: %v", id, err)
		}
	}
	for _, id := range []any{bson.Undefined{}, bson.A{1}, bson.Regex{Pattern: "a"}} {
		r := recordOf(t, "old", bson.D{{Key: "_id", Value: id}})
		if _, _, err := up.GroupOf(r.Kind, r.Key); err == nil || !strings.Contains(err.Error(), "cannot be the _id of a document") {
			t.Errorf("_id %v: %v", id, err)
		}
	}
}

func TestSameFields(t *testing.T) {
	t.Parallel()
	doc := func(d bson.D) bson.Raw {
		b, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	base := doc(bson.D{{Key: "a", Value: 1}, {Key: "b", Value: bson.D{{Key: "c", Value: "x"}, {Key: "d", Value: bson.A{1, 2}}}}})
	for name, tc := range map[string]struct {
		other bson.Raw
		want  bool
	}{
		"same":            {base, true},
		"other order":     {doc(bson.D{{Key: "b", Value: bson.D{{Key: "d", Value: bson.A{1, 2}}, {Key: "c", Value: "x"}}}, {Key: "a", Value: 1}}), true},
		"order of a list": {doc(bson.D{{Key: "a", Value: 1}, {Key: "b", Value: bson.D{{Key: "c", Value: "x"}, {Key: "d", Value: bson.A{2, 1}}}}}), false},
		"other type":      {doc(bson.D{{Key: "a", Value: int64(1)}, {Key: "b", Value: bson.D{{Key: "c", Value: "x"}, {Key: "d", Value: bson.A{1, 2}}}}}), false},
		"one more":        {doc(bson.D{{Key: "a", Value: 1}, {Key: "b", Value: bson.D{{Key: "c", Value: "x"}, {Key: "d", Value: bson.A{1, 2}}}}, {Key: "e", Value: nil}}), false},
		"one twice":       {doc(bson.D{{Key: "a", Value: 1}, {Key: "a", Value: 1}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := transform.SameFields(base, tc.other); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
			if got := transform.SameFields(tc.other, base); got != tc.want {
				t.Errorf("the other way round: %t, want %t", got, tc.want)
			}
		})
	}
}
