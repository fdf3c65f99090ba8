package region_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kinds = map[string]region.Kind{"books": {Field: "home"}}

// world is region us, which shows copies of eu and asia.
func world(t testing.TB) (*region.Store, *sampletest.Store) {
	t.Helper()
	data := sampletest.New(t, "books", region.CopiesKind("books"), "others")
	return region.Over(data, "us", []string{"eu", "asia"}, kinds), data
}

func book(name, home string) bson.D {
	d := bson.D{{Key: "_id", Value: name}, {Key: "title", Value: "of " + home}}
	if home != "" {
		d = append(d, bson.E{Key: "home", Value: home})
	}
	return d
}

// put stores a copy of a region, or an owned record of us.
func put(t testing.TB, data *sampletest.Store, name, home string) {
	t.Helper()
	kind, key, doc := "books", name, book(name, home)
	if home != "us" {
		kind, key = region.CopiesKind("books"), region.CopyKey(home, name)
		doc[0].Value = key
	}
	if err := data.Write(t.Context(), []record.Mutation{{Kind: kind, Key: record.StringKey(key), Doc: raw(t, doc)}}); err != nil {
		t.Fatal(err)
	}
}

func titles(t testing.TB, recs []record.Record) (out []string) {
	t.Helper()
	for _, rec := range recs {
		name, _ := rec.Key.Name()
		title, _ := rec.Doc.Lookup("title").StringValueOK()
		if id, _ := rec.Doc.Lookup("_id").StringValueOK(); id != name || rec.Kind != "books" {
			t.Errorf("a %s with the key %s and the _id %s", rec.Kind, name, id)
		}
		out = append(out, name+" "+title)
	}
	return out
}

// TestListsAreMerged compares pages of any size with the sorted union of all regions.
func TestListsAreMerged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s, data := world(t)
		want := map[string]string{}
		// The later one wins: the first region of the configuration, and before all the owner.
		homes := []string{"asia", "eu", "us"}
		for _, home := range homes {
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 0, 12, rapid.ID).Draw(rt, home) {
				name := fmt.Sprintf("b%02d", n)
				put(t, data, name, home)
				want[name] = name + " of " + home
			}
		}
		prefix := rapid.SampledFrom([]string{"", "b1", "b2", "c"}).Draw(rt, "prefix")
		var all, names []string
		for name, text := range want {
			if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
				all, names = append(all, text), append(names, name)
			}
		}
		slices.Sort(all)
		slices.Sort(names)
		limit, bytes := rapid.IntRange(1, 5).Draw(rt, "limit"), rapid.SampledFrom([]int{1 << 20, 1, 100}).Draw(rt, "bytes")
		var pages, bounded, gotNames []string
		for after := ""; ; {
			recs, err := s.List(t.Context(), "books", prefix, after, limit)
			if err != nil {
				rt.Fatal(err)
			}
			pages = append(pages, titles(t, recs)...)
			if len(recs) < limit {
				break
			}
			after, _ = recs[len(recs)-1].Key.Name()
		}
		for after := ""; ; {
			recs, more, err := s.ListBounded(t.Context(), "books", prefix, after, limit, bytes)
			if err != nil {
				rt.Fatal(err)
			}
			bounded = append(bounded, titles(t, recs)...)
			if !more {
				break
			}
			after, _ = recs[len(recs)-1].Key.Name()
		}
		for after := ""; ; {
			some, err := s.ListNames(t.Context(), "books", prefix, after, limit)
			if err != nil {
				rt.Fatal(err)
			}
			gotNames = append(gotNames, some...)
			if len(some) < limit {
				break
			}
			after = some[len(some)-1]
		}
		if !slices.Equal(pages, all) || !slices.Equal(bounded, all) || !slices.Equal(gotNames, names) {
			rt.Errorf("listed %v, bounded %v, named %v, want %v", pages, bounded, gotNames, all)
		}
		for _, name := range names {
			rec, err := s.Get(t.Context(), "books", name)
			if err != nil {
				rt.Fatal(err)
			}
			if got := titles(t, []record.Record{rec}); got[0] != want[name] {
				rt.Errorf("got %s, want %s", got[0], want[name])
			}
		}
	})
}

// TestOwnedOnly: servers of other regions see no copies, in any read.
func TestOwnedOnly(t *testing.T) {
	t.Parallel()
	s, data := world(t)
	put(t, data, "a", "us")
	put(t, data, "b", "eu")
	ctx := region.Owned(t.Context())
	recs, err := s.List(ctx, "books", "", "", 0)
	if err != nil || len(recs) != 1 {
		t.Errorf("listed %v, %v", recs, err)
	}
	if _, err := s.Get(ctx, "books", "b"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a copy is read: %v", err)
	}
	recs, err = s.Select(ctx, []record.Selector{{Kind: "books", Key: record.StringKey("a")}, {Kind: "books", Key: record.StringKey("b")}}, false)
	if err != nil || len(recs) != 1 {
		t.Errorf("selected %v, %v", recs, err)
	}
	sub, err := s.Changes(ctx, "books")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	put(t, data, "c", "eu")
	put(t, data, "d", "us")
	dirty, err := sub.Next(ctx)
	if err != nil || len(dirty) != 1 || dirty[0].Name != "d" {
		t.Errorf("followed %v, %v", dirty, err)
	}
}

// TestChanges: a copy counts as a record of its kind, under its own name.
func TestChanges(t *testing.T) {
	t.Parallel()
	s, data := world(t)
	sub, err := s.Changes(t.Context(), "books")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	put(t, data, "b", "eu")
	dirty, err := sub.Next(t.Context())
	if err != nil || len(dirty) != 1 || dirty[0] != (vrunner.Dirty{Kind: "books", Name: "b"}) {
		t.Errorf("followed %v, %v", dirty, err)
	}
}

func raw(t testing.TB, d bson.D) bson.Raw {
	t.Helper()
	doc, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestWrites: what concerns a copy has no effect and names the owner; what is owned is written.
func TestWrites(t *testing.T) {
	t.Parallel()
	key := record.StringKey
	match := func(d bson.D) *record.Match { return record.MatchDoc(raw(t, d)) }
	for name, c := range map[string]struct {
		ms    []record.Mutation
		owner string // in the refusal
		want  error
	}{
		"create":                      {ms: []record.Mutation{{Key: key("new"), Doc: raw(t, book("new", "us")), Absent: true}}},
		"create without a region":     {ms: []record.Mutation{{Key: key("new"), Doc: raw(t, book("new", "")), Absent: true}}},
		"create in another region":    {ms: []record.Mutation{{Key: key("new"), Doc: raw(t, book("new", "asia")), Absent: true}}, owner: "asia"},
		"create over a copy":          {ms: []record.Mutation{{Key: key("theirs"), Doc: raw(t, book("theirs", "us")), Absent: true}}, want: record.ErrExists},
		"replace":                     {ms: []record.Mutation{{Key: key("mine"), Doc: raw(t, book("mine", "us"))}}},
		"replace a copy":              {ms: []record.Mutation{{Key: key("theirs"), Doc: raw(t, book("theirs", "us"))}}, owner: "eu"},
		"change":                      {ms: []record.Mutation{{Key: key("mine"), Doc: raw(t, book("mine", "us")), Match: match(book("mine", "us"))}}},
		"change a copy":               {ms: []record.Mutation{{Key: key("theirs"), Doc: raw(t, book("theirs", "eu")), Match: match(book("theirs", "eu"))}}, owner: "eu"},
		"give away":                   {ms: []record.Mutation{{Key: key("mine"), Doc: raw(t, book("mine", "eu")), Match: match(book("mine", "us"))}}, want: errInvalid},
		"keep a wrong region":         {ms: []record.Mutation{{Key: key("wrong"), Doc: raw(t, book("wrong", "eu")), Match: match(book("wrong", "eu"))}}},
		"delete":                      {ms: []record.Mutation{{Key: key("mine"), Exists: true}}},
		"delete a copy":               {ms: []record.Mutation{{Key: key("theirs"), Exists: true}}, owner: "eu"},
		"delete a copy in any case":   {ms: []record.Mutation{{Key: key("theirs")}}, owner: "eu"},
		"delete nothing":              {ms: []record.Mutation{{Key: key("none"), Exists: true}}, want: record.ErrNotFound},
		"two regions":                 {ms: []record.Mutation{{Key: key("mine"), Exists: true}, {Key: key("theirs"), Exists: true}}, owner: "eu"},
		"create one, delete a copy":   {ms: []record.Mutation{{Key: key("new"), Doc: raw(t, book("new", "us")), Absent: true}, {Key: key("theirs")}}, owner: "eu"},
		"an owned one hides the copy": {ms: []record.Mutation{{Key: key("both"), Exists: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, data := world(t)
			for name, home := range map[string]string{"mine": "us", "theirs": "eu"} {
				put(t, data, name, home)
			}
			put(t, data, "both", "us")
			put(t, data, "both", "eu")
			data.Put(t, "books", book("wrong", "eu"))
			for i := range c.ms {
				c.ms[i].Kind = "books"
			}
			before, err := data.List(t.Context(), region.CopiesKind("books"), "", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Write(t.Context(), c.ms)
			switch answer, refused := refusal.In(err); {
			case c.owner != "" && !refused:
				t.Errorf("answered %v, want a refusal with the owner %s", err, c.owner)
			case c.owner != "":
				if got, m := refusal.Of(answer); got != refusal.NotOwner || m[refusal.MetaRegion] != c.owner {
					t.Errorf("refused with %v, want the owner %s", err, c.owner)
				}
			case c.want == errInvalid:
				if err == nil || refused {
					t.Errorf("answered %v", err)
				}
			case !errors.Is(err, c.want) || c.want == nil && err != nil:
				t.Errorf("answered %v, want %v", err, c.want)
			}
			after, err := data.List(t.Context(), region.CopiesKind("books"), "", "", 0)
			if err != nil || len(after) != len(before) {
				t.Errorf("copies changed: %v, %v", after, err)
			}
			if _, err := data.Get(t.Context(), "books", "mine"); c.owner != "" && err != nil {
				t.Errorf("a refused write had an effect: %v", err)
			}
		})
	}
}

var errInvalid = errors.New("an invalid argument")

// TestReadBeforeChange: a copy may be outdated, so its owner decides.
func TestReadBeforeChange(t *testing.T) {
	t.Parallel()
	s, data := world(t)
	put(t, data, "mine", "us")
	put(t, data, "theirs", "eu")
	ctx := vrunner.Changing(t.Context())
	if _, err := s.Get(ctx, "books", "mine"); err != nil {
		t.Error(err)
	}
	_, err := s.Get(ctx, "books", "theirs")
	if answer, ok := refusal.In(err); !ok {
		t.Errorf("read with %v", err)
	} else if reason, _ := refusal.Of(answer); reason != refusal.NotOwner {
		t.Errorf("refused with %s", reason)
	}
}

// TestOwnerInName: the region in a name decides, without a read.
func TestOwnerInName(t *testing.T) {
	t.Parallel()
	k := region.Kind{Collection: "regions"}
	for name, want := range map[string]string{"projects/p/regions/eu/books/b": "eu", "projects/regions/books/b": "", "b": ""} {
		if got := k.OwnerOf(name, nil); got != want {
			t.Errorf("%s is owned by %q, want %q", name, got, want)
		}
	}
	data := sampletest.New(t, "books", region.CopiesKind("books"))
	s := region.Over(data, "us", []string{"eu"}, map[string]region.Kind{"books": k})
	name := "projects/p/regions/eu/books/b"
	err := s.Write(context.Background(), []record.Mutation{{Kind: "books", Key: record.StringKey(name), Doc: raw(t, bson.D{{Key: "_id", Value: name}}), Absent: true}})
	if answer, ok := refusal.In(err); !ok {
		t.Errorf("written with %v", err)
	} else if _, meta := refusal.Of(answer); meta[refusal.MetaRegion] != "eu" {
		t.Errorf("refused for %v", meta)
	}
}

// TestOnlyTheOwnersCopy: with the region in the name, no other region's copy is shown under it, or blocks
// it.
func TestOnlyTheOwnersCopy(t *testing.T) {
	t.Parallel()
	data := sampletest.New(t, "books", region.CopiesKind("books"))
	s := region.Over(data, "us", []string{"eu", "asia"}, map[string]region.Kind{"books": {Collection: "regions"}})
	const mine, theirs = "regions/us/books/b", "regions/asia/books/b"
	put(t, data, mine, "eu")
	put(t, data, theirs, "eu")
	put(t, data, theirs, "asia")
	rec, err := s.Get(t.Context(), "books", theirs)
	if err != nil {
		t.Fatal(err)
	}
	if got := titles(t, []record.Record{rec}); got[0] != theirs+" of asia" {
		t.Errorf("shown %v", got)
	}
	if _, err := s.Get(t.Context(), "books", mine); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a copy of eu is shown as a record of us: %v", err)
	}
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey(mine), Doc: raw(t, book(mine, "us")), Absent: true}}); err != nil {
		t.Errorf("a copy of eu blocks a name of us: %v", err)
	}
}
