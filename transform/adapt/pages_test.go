package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
)

// listed is a kind whose lists are tried while others write.
type listed struct {
	kind string
	make func(t testing.TB, db database) face
	doc  func(name string) bson.D // of the version that writes
	name func(i int) string
	// through writes: the version shown, or the stored one.
	shown bool
	cfg   adapt.Config // of the adapter
	// as is how the version shown names what is made of it.
	as func(name string) []string
}

func asIs(name string) []string { return []string{name} }

// ways are the ways in which lists are made.
var ways = map[string]listed{
	"names that sort otherwise": {
		kind: "things", shown: true, as: asIs,
		make: func(t testing.TB, db database) face {
			return newFace(t, db, swapped(t), "v2", "v1", adapt.Config{})
		},
		name: func(i int) string { return fmt.Sprintf("%d/x%d", i%7, i) },
		doc:  func(name string) bson.D { return bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(1)}} },
	},
	"names that sort the same": {
		kind: "secrets", shown: true, as: asIs,
		make: func(t testing.TB, db database) face {
			l, err := lens.Parse("secrets.yaml", []byte(secretsLens))
			if err != nil {
				t.Fatal(err)
			}
			reg := transform.NewRegistry("secrets")
			if err := reg.Add("v1", "v2", l.Spec("secrets", "secrets", lens.Managed())); err != nil {
				t.Fatal(err)
			}
			return newFace(t, db, reg, "v2", "v1", adapt.Config{})
		},
		name: func(i int) string { return fmt.Sprintf("projects/%d/secrets/s%d", i%7, i) },
		doc:  func(name string) bson.D { return bson.D{{Key: "_id", Value: name}, {Key: "owner", Value: "a/b"}} },
	},
	"one kind leads": {
		kind: "wholes", shown: true, as: asIs, cfg: adapt.Config{Leads: map[string]string{"wholes": "heads"}},
		make: func(t testing.TB, db database) face {
			return newFace(t, db, split(t), "v2", "v1", adapt.Config{Leads: map[string]string{"wholes": "heads"}})
		},
		name: func(i int) string { return fmt.Sprintf("w%d", i) },
		doc:  func(name string) bson.D { return whole(name, 1, "text") },
	},
	"no kind leads": {
		kind: "wholes", shown: true, as: asIs,
		make: func(t testing.TB, db database) face {
			return newFace(t, db, split(t), "v2", "v1", adapt.Config{})
		},
		name: func(i int) string { return fmt.Sprintf("w%d", i) },
		doc:  func(name string) bson.D { return whole(name, 1, "text") },
	},
	"parts of records": {
		kind: "parts", as: func(name string) []string { return []string{name + "/main"} },
		make: func(t testing.TB, db database) face {
			return newFace(t, db, split(t), "v1", "v2", adapt.Config{})
		},
		// "w1-2/main" sorts before "w1/main".
		name: func(i int) string { return strings.Replace(fmt.Sprintf("w%d-%d", i%7, i), "-0", "", 1) },
		doc:  func(name string) bson.D { return whole(name, 1, "text") },
	},
	"several parts of each record": {
		kind: "lines", as: func(name string) []string { return []string{name + "/a", name + "/b", name + "/c"} },
		make: func(t testing.TB, db database) face {
			return newFace(t, db, lines(t), "v1", "v2", adapt.Config{})
		},
		// The lines of "w1/b" sort between those of "w1".
		name: func(i int) string { return fmt.Sprintf("w%d", i/4) + []string{"", "/b", "/b/b", "-x"}[i/2%2+i%2*2] },
		doc:  func(name string) bson.D { return bson.D{{Key: "_id", Value: name}} },
	},
}

// lines has a page in v1 that is three lines in v2, "<page>/a" to "<page>/c".
func lines(t fatal) *transform.Registry {
	t.Helper()
	reg := transform.NewRegistry("lines")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "pages", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "pages"}}}},
		New: transform.Side{
			Kinds: []transform.GroupedKind{{
				KindSpec: record.KindSpec{Name: "lines"},
				GroupOf: func(k record.Key) (string, error) {
					name, _ := k.Name()
					return string(record.StringKey(name[:strings.LastIndexByte(name, '/')])), nil
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					return record.Selector{Key: record.StringKey(name + "/"), Prefix: true}
				},
			}},
			Anchor: func(group string) (string, record.Key) {
				name, _ := record.Key(group).Name()
				return "lines", record.StringKey(name + "/a")
			},
		},
		Up: func(src, _ transform.Group) (out []record.Record, err error) {
			for _, r := range src.Records {
				for _, line := range []string{"/a", "/b", "/c"} {
					out = append(out, made("lines", bson.D{{Key: "_id", Value: r.Key.String() + line}}))
				}
			}
			return out, nil
		},
		Down: func(src, _ transform.Group) (out []record.Record, err error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			line := src.Records[0].Key.String()
			return []record.Record{made("pages", bson.D{{Key: "_id", Value: line[:strings.LastIndexByte(line, '/')]}})}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// TestPagesWhileOthersWrite: what is there all the time is on exactly one page of a list, in its
// order, whatever is made, changed and deleted meanwhile, and whichever server makes the next
// page.
func TestPagesWhileOthersWrite(t *testing.T) {
	t.Parallel()
	for backend, open := range backends {
		for label, w := range ways {
			t.Run(backend+", "+label, func(t *testing.T) { pagesWhileOthersWrite(t, w, w.make(t, open(t))) })
			t.Run(backend+", "+label+", without an index", func(t *testing.T) {
				f := w.make(t, open(t))
				a, err := adapt.New(batched{f.stored}, f.show, f.keep, w.cfg)
				if err != nil {
					t.Fatal(err)
				}
				f.adapter = a
				pagesWhileOthersWrite(t, w, f)
			})
		}
	}
}

func pagesWhileOthersWrite(t *testing.T, w listed, f face) {
	t.Helper()
	t.Parallel()
	f.adapter.Remember(10, 1<<20)
	var writer adapt.Store = f.stored
	if w.shown {
		writer = f.adapter
	}
	kind := w.kind
	if !w.shown {
		kind = f.show.SourceKinds()[0].Name
	}
	write := func(ctx context.Context, i int, remove bool) error {
		rec := made(kind, w.doc(w.name(i)))
		if remove {
			rec.Doc = nil
		}
		err := writer.Write(ctx, []record.Mutation{{Kind: kind, Key: rec.Key, Doc: rec.Doc}})
		if errors.Is(err, record.ErrMismatch) {
			err = nil // another writer was faster
		}
		return err
	}
	const stays, comes = 40, 60
	var want []string
	for i := range stays {
		if err := write(t.Context(), 2*i, false); err != nil {
			t.Fatal(err)
		}
		want = append(want, w.as(w.name(2*i))...)
	}
	slices.Sort(want)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	writers, ctx := errgroup.WithContext(ctx)
	for n := range 2 {
		writers.Go(func() error {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for ctx.Err() == nil {
				i := rng.IntN(comes)
				err := write(ctx, 2*i+1, rng.IntN(2) == 0)
				if err == nil {
					err = write(ctx, 2*(i%stays), false)
				}
				if err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	walks := 12
	if raced.On {
		walks = 3
	}
	for walk := range walks {
		var have []string
		for after, limit := "", 2+walk*3; ; {
			recs, err := f.adapter.List(ctx, w.kind, "", after, limit)
			if errors.Is(err, record.ErrMismatch) {
				continue // too fast to be read
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				name, _ := r.Key.Name()
				have = append(have, name)
			}
			if len(recs) < limit {
				break
			}
			after = have[len(have)-1]
		}
		for i := range have[:max(len(have)-1, 0)] {
			if have[i] >= have[i+1] {
				t.Fatalf("%q is listed before %q", have[i], have[i+1])
			}
		}
		for _, name := range want {
			if _, found := slices.BinarySearch(have, name); !found {
				t.Fatalf("%q is there all the time, and not on any page of %d records", name, len(have))
			}
		}
	}
	stop()
	if err := writers.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPagesAcrossTheSwitch: a list that goes on over the other version's data, forth and back
// between any two pages, shows each record once.
func TestPagesAcrossTheSwitch(t *testing.T) {
	t.Parallel()
	for label, w := range ways {
		if !w.shown {
			continue
		}
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			f := w.make(t, memstore.New())
			own := namespaceOn(t, memstore.New(), record.KindSpec{Name: w.kind})
			var want []string
			for i := range 50 {
				want = append(want, w.name(i))
				put(t, own, w.kind, w.doc(w.name(i)))
				put(t, f.adapter, w.kind, w.doc(w.name(i)))
			}
			slices.Sort(want)
			var have []string
			for page, after := 0, ""; ; page++ {
				var s adapt.Store = own
				if page%2 == 1 {
					s = f.adapter
				}
				recs, err := s.List(t.Context(), w.kind, "", after, 7)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range recs {
					name, _ := r.Key.Name()
					have = append(have, name)
				}
				if len(recs) < 7 {
					break
				}
				after = have[len(have)-1]
			}
			if !slices.Equal(have, want) {
				t.Errorf("listed %q, want %q", have, want)
			}
		})
	}
}

// TestOneCommandForAPage: what a page of groups of several records asks of a store.
func TestOneCommandForAPage(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"names that sort otherwise": "select", "names that sort the same": "list",
		"one kind leads": "together", "no kind leads": "select", "parts of records": "select",
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			w := ways[label]
			f := w.make(t, memstore.New())
			for i := range 30 {
				rec := made(w.kind, w.doc(w.name(i)))
				var s adapt.Store = f.adapter
				if !w.shown {
					rec.Kind, s = f.show.SourceKinds()[0].Name, f.stored
				}
				if err := s.Write(t.Context(), []record.Mutation{{Kind: rec.Kind, Key: rec.Key, Doc: rec.Doc}}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.adapter.List(t.Context(), w.kind, "", "", 1); err != nil { // fills the index
				t.Fatal(err)
			}
			f.stored.asked = nil
			if recs, err := f.adapter.List(t.Context(), w.kind, "", "", 10); err != nil || len(recs) != 10 || strings.Join(f.stored.asked, " ") != want {
				t.Errorf("%d records, %v by %v, want %s", len(recs), err, f.stored.asked, want)
			}
		})
	}
}

// TestTombstones: what is left of a group whose leading record was deleted, and the names of
// tombstones, which a list of names may hold, keep no page short and end no list.
func TestTombstones(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	f := newFace(t, db, split(t), "v2", "v1", adapt.Config{Leads: map[string]string{"wholes": "heads"}})
	batch := record.Batch{Tokens: f.stored.tokens, Epoch: 1}
	for i := range 9 {
		name := fmt.Sprintf("w%d", i)
		if i%3 == 0 {
			put(t, f.adapter, "wholes", whole(name, 1, "text"))
			continue
		}
		part := made("parts", bson.D{{Key: "_id", Value: name + "/main"}})
		batch.Groups = append(batch.Groups, record.GroupWrite{Group: name, Version: record.Version{1}, Writes: []record.Write{
			{Kind: "heads", Key: record.StringKey(name)}, {Kind: "parts", Key: part.Key, Doc: part.Doc},
		}})
	}
	if _, err := db.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit < 5; limit++ {
		if got := pages(t, f.adapter, "wholes", "", limit); got != "w0 w3 w6" {
			t.Errorf("%d at a time: %s", limit, got)
		}
	}
	other := newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{})
	put(t, other.adapter, "things", bson.D{{Key: "_id", Value: "a/b"}})
	batch = record.Batch{Tokens: other.stored.tokens, Epoch: 1, Groups: []record.GroupWrite{
		{Group: "b/z", Version: record.Version{1}, Writes: []record.Write{{Kind: "items", Key: record.StringKey("b/z")}}},
		{Group: "z/a", Version: record.Version{1}, Writes: []record.Write{{Kind: "items", Key: record.StringKey("z/a")}}},
	}}
	if _, err := other.stored.client.(database).(interface {
		Apply(context.Context, record.Batch) ([]record.Result, error)
	}).Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if got := pages(t, other.adapter, "things", "", 1); got != "a/b" {
		t.Errorf("listed %s", got)
	}
}
