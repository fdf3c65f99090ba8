package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
)

// observed records what is asked of a store.
type observed struct {
	adapt.Store
	mu    sync.Mutex
	asked []string
}

func (o *observed) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, fmt.Sprintf(format, args...))
}

func (o *observed) Get(ctx context.Context, kind, key string) (record.Record, error) {
	o.note("get %s %s", kind, key)
	return o.Store.Get(ctx, kind, key)
}

func (o *observed) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	o.note("list %s %s", kind, prefix)
	return o.Store.List(ctx, kind, prefix, after, limit)
}

// pages lists a kind, so many records at a time.
func pages(t *testing.T, s adapt.Store, kind, prefix string, limit int) string {
	t.Helper()
	var all []record.Record
	for after := ""; ; {
		recs, err := s.List(t.Context(), kind, prefix, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recs...)
		if len(recs) < limit {
			return names(all)
		}
		after, _ = recs[len(recs)-1].Key.Name()
	}
}

// TestPartsOverWholes: parts, whose names are in another order than the wholes that they
// are made of, are listed in theirs, and those of one whole by reading only that.
func TestPartsOverWholes(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	for _, name := range []string{"a", "a-b", "a.c", "ab"} {
		put(t, f.stored, "wholes", whole(name, 1, name))
	}
	for limit := 1; limit < 6; limit++ {
		if got, want := pages(t, f.adapter, "parts", "", limit), "a-b/main a.c/main a/main ab/main"; got != want {
			t.Errorf("parts: %s, want %s", got, want)
		}
		if got, want := pages(t, f.adapter, "heads", "a", limit), "a a-b a.c ab"; got != want {
			t.Errorf("heads: %s, want %s", got, want)
		}
	}
	o := &observed{Store: f.stored}
	a, err := adapt.New(o, f.show, f.keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := pages(t, a, "parts", "a/", 10); got != "a/main" || !slices.Equal(o.asked, []string{"get wholes a"}) {
		t.Errorf("got %s by %v", got, o.asked)
	}
	o.asked = nil
	if got := pages(t, a, "heads", "a-", 10); got != "a-b" || !slices.Equal(o.asked, []string{"list wholes a-"}) {
		t.Errorf("got %s by %v", got, o.asked)
	}
}

// TestPartOverWhole: a part that v1 has no place for is refused.
func TestPartOverWhole(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	put(t, f.stored, "wholes", whole("a", 1, "text"))
	part := made("parts", bson.D{{Key: "_id", Value: "a/second"}, {Key: "body", Value: 1}})
	var loss *adapt.LossError
	if err := f.adapter.Write(t.Context(), []record.Mutation{{Kind: part.Kind, Key: part.Key, Doc: part.Doc}}); !errors.As(err, &loss) || loss.Key != part.Key || loss.Version != "v1" {
		t.Errorf("%v", err)
	}
	put(t, f.adapter, "parts", bson.D{{Key: "_id", Value: "a/main"}, {Key: "body", Value: bson.D{{Key: "text", Value: "new"}}}})
	rec, err := f.stored.Get(t.Context(), "wholes", "a")
	if err != nil || rec.Doc.Lookup("body", "text").StringValue() != "new" {
		t.Errorf("%s, %v", rec.Doc, err)
	}
}

// TestHiddenRecords: a list goes on past stored records that show nothing, or have no group.
func TestHiddenRecords(t *testing.T) {
	t.Parallel()
	reg := transform.NewRegistry("hidden")
	copied := func(kind string) transform.Func {
		return func(src, _ transform.Group) (out []record.Record, err error) {
			for _, r := range src.Records {
				if _, hidden := r.Doc.Lookup("hidden").BooleanOK(); !hidden {
					out = append(out, record.Record{Kind: kind, Key: r.Key, Doc: r.Doc})
				}
			}
			return out, nil
		}
	}
	side := func(kind string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
	}
	if err := reg.Add("v1", "v2", transform.Spec{Name: "s", Revision: "1", Old: side("old"), New: side("new"), Up: copied("new"), Down: copied("old")}); err != nil {
		t.Fatal(err)
	}
	f := newFace(t, memstore.New(), reg, "v2", "v1", adapt.Config{})
	var want []string
	for i := range 12 {
		d := bson.D{{Key: "_id", Value: fmt.Sprintf("n%02d", i)}}
		if i%4 != 3 {
			d = append(d, bson.E{Key: "hidden", Value: true})
		} else {
			want = append(want, fmt.Sprintf("n%02d", i))
		}
		put(t, f.stored, "new", d)
	}
	for limit := 1; limit < 5; limit++ {
		if got := pages(t, f.adapter, "old", "", limit); got != strings.Join(want, " ") {
			t.Errorf("%d at a time: %s, want %s", limit, got, want)
		}
	}
	// What shows nothing is not there, and not lost by a delete that finds nothing.
	if err := f.adapter.Write(t.Context(), []record.Mutation{{Kind: "old", Key: record.StringKey("n00")}}); err != nil {
		t.Error(err)
	}
	if recs, err := f.stored.List(t.Context(), "new", "", "", 0); err != nil || len(recs) != 12 {
		t.Errorf("%d stored records are left, %v", len(recs), err)
	}
}

// TestAnotherOrder: names that sort otherwise are listed in the order of the version shown, in
// pages of any size, and a mapping narrows what is gone over.
func TestAnotherOrder(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{})
	for i := range 30 {
		put(t, f.stored, "items", bson.D{{Key: "_id", Value: fmt.Sprintf("%d/of-%d", i/10, i%10)}})
	}
	put(t, f.stored, "items", bson.D{{Key: "_id", Value: "no group"}})
	alone, err := adapt.New(single{f.stored}, f.show, f.keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for label, a := range map[string]*adapt.Adapter{"batches": f.adapter, "one by one": alone} {
		if got := pages(t, a, "things", "of-3/", 2); got != "of-3/0 of-3/1 of-3/2" {
			t.Errorf("%s: got %s", label, got)
		}
		for _, size := range []int{1, 7, 30, 31} {
			if got := strings.Fields(pages(t, a, "things", "", size)); len(got) != 30 || !slices.IsSorted(got) {
				t.Errorf("%s, %d at a time: got %s", label, size, got)
			}
		}
	}

	show, err := regional(t).Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := regional(t).Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	stored := namespaceOn(t, memstore.New(), show.SourceKinds()...)
	o := &observed{Store: stored}
	a, err := adapt.New(o, show, keep, adapt.Config{Leads: map[string]string{"secrets": "secrets"}, Names: map[string]transform.Mapping{"secrets": regions{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p/1/regions/here/s/a", "p/1/regions/here/s/b", "p/1/regions/there/s/c", "p/2/regions/here/s/d", "p/2/regions/here/s/e"} {
		put(t, stored, "secrets", bson.D{{Key: "_id", Value: name}})
	}
	if got := pages(t, a, "secrets", "p/1/s/", 1); got != "p/1/s/a p/1/s/b" || o.asked[0] != "list secrets p/1/regions/here/s/" {
		t.Errorf("got %s by %v", got, o.asked)
	}
	if got := pages(t, a, "secrets", "p/2/s/e", 10); got != "p/2/s/e" {
		t.Errorf("got %s", got)
	}
}

// TestOrderedIsChecked: names that are declared to sort the same, and do not, end the list
// instead of leaving records out of later pages.
func TestOrderedIsChecked(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("things.yaml", []byte("lens: 1\nkey: {from: \"{a}/{b}\", to: \"{b}/{a}\"}\noperations: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	reg := transform.NewRegistry("swapped")
	if err := reg.Add("v1", "v2", l.Spec("things", "things", lens.Managed())); err != nil {
		t.Fatal(err)
	}
	cfg := adapt.Config{Leads: map[string]string{"things": "things"}, Names: map[string]transform.Mapping{"things": l.UpMapping()}}
	f := newFace(t, memstore.New(), reg, "v2", "v1", cfg)
	for _, name := range []string{"a/2", "b/1"} {
		put(t, f.adapter, "things", bson.D{{Key: "_id", Value: name}})
	}
	if got := pages(t, f.adapter, "things", "", 1); got != "a/2 b/1" {
		t.Errorf("sorted: %s", got)
	}
	cfg.Ordered = map[string]bool{"things": true}
	ordered, err := adapt.New(f.stored, f.show, f.keep, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var unsupported *record.UnsupportedError
	if recs, err := ordered.List(t.Context(), "things", "", "", 10); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "leave it out of Ordered") {
		t.Errorf("listed %v, %v", recs, err)
	}
}

// regional has names "p/1/s/a" in v1 that are "p/1/regions/here/s/a" in v2. Those of other
// regions have no group.
func regional(t fatal) *transform.Registry {
	t.Helper()
	up := func(name string) string { return strings.Replace(name, "/s/", "/regions/here/s/", 1) }
	down := func(k record.Key) (string, error) {
		name, _ := k.Name()
		if !strings.Contains(name, "/regions/here/") {
			return "", errors.New("another region")
		}
		return strings.Replace(name, "/regions/here/", "/", 1), nil
	}
	renamed := func(name func(record.Key) (string, error)) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			var d bson.D
			if err := bson.Unmarshal(src.Records[0].Doc, &d); err != nil {
				return nil, err
			}
			to, err := name(src.Records[0].Key)
			d[0].Value = to
			return []record.Record{made("secrets", d)}, err
		}
	}
	nameOf := func(group string) string { name, _ := record.Key(group).Name(); return name }
	reg := transform.NewRegistry("regional")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "secrets", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "secrets"}}}},
		New: transform.Side{
			Kinds: []transform.GroupedKind{{
				KindSpec: record.KindSpec{Name: "secrets"},
				GroupOf:  func(k record.Key) (string, error) { name, err := down(k); return string(record.StringKey(name)), err },
				Select:   func(group string) record.Selector { return record.Selector{Key: record.StringKey(up(nameOf(group)))} },
			}},
			Anchor: func(group string) (string, record.Key) { return "secrets", record.StringKey(up(nameOf(group))) },
		},
		Up:   renamed(func(k record.Key) (string, error) { name, _ := k.Name(); return up(name), nil }),
		Down: renamed(down),
	})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// regions maps the names of regional.
type regions struct{ transform.Identity }

func (regions) Parent(parent string) (string, error) {
	return strings.Replace(parent, "/s", "/regions/here/s", 1), nil
}
