package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// direct is a namespace of two kinds in memory, with nothing in front of it.
type direct struct {
	record.Client
	tokens record.Tokens
	writes int
	before func() // each write
}

func newDirect(t *testing.T) *direct {
	t.Helper()
	ns := memstore.New()
	d := &direct{Client: ns, tokens: record.Tokens{}}
	for _, kind := range []string{"a", "b"} {
		tok, err := ns.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		d.tokens[kind] = tok
	}
	return d
}

var _ vrunner.BatchStore = (*direct)(nil)

func (d *direct) Get(ctx context.Context, kind, key string) (record.Record, error) {
	return d.Client.Get(ctx, d.tokens[kind], record.StringKey(key))
}

func (d *direct) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	return d.Client.List(ctx, record.ListRequest{Token: d.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (d *direct) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	return d.Client.ListNames(ctx, record.ListRequest{Token: d.tokens[kind], Prefix: prefix, After: after, Limit: limit})
}

func (d *direct) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	return d.Client.Select(ctx, record.SelectRequest{Tokens: d.tokens, Select: sels, AsList: asList})
}

func (d *direct) Write(ctx context.Context, ms []record.Mutation) error {
	d.writes++
	if d.before != nil {
		d.before()
	}
	return d.Client.Write(ctx, d.tokens, ms)
}

func (*direct) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, errors.New("nobody asks")
}

// content is all that a namespace holds, as one text.
func (d *direct) content(t interface{ Fatal(...any) }) string {
	all := map[string]string{}
	for kind := range d.tokens {
		recs, err := d.List(context.Background(), kind, "", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			name, _ := r.Key.Name()
			all[kind+"/"+name] = r.Doc.String()
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return strings.Join(out, "\n")
}

func note(kind, name string, n int) record.Mutation {
	raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: n}})
	if err != nil {
		panic(err)
	}
	return record.Mutation{Kind: kind, Key: record.StringKey(name), Doc: raw}
}

// said is what a call returned, as one text.
func said[T any](got T, err error) string {
	for _, known := range []error{record.ErrNotFound, record.ErrExists, record.ErrMismatch} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(got)
}

func texts(recs []record.Record, err error) (out []string, _ error) {
	for _, r := range recs {
		out = append(out, r.Kind+r.Doc.String())
	}
	return out, err
}

// TestJoinedIsAsWrittenAtOnce: whatever calls write and read together, each is told what it
// would have been told if all of it had been written at once; and what is written in the end
// is the same, in one write.
func TestJoinedIsAsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	names := []string{"k", "ka", "kb", "l", "la"}
	rapid.Check(t, func(rt *rapid.T) {
		twin, below := newDirect(t), newDirect(t)
		joined, together := vrunner.Join(below)
		batch := joined.(vrunner.BatchStore)
		name := func(label string) string { return rapid.SampledFrom(names).Draw(rt, label) }
		kind := func() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "kind") }
		mutation := func() record.Mutation {
			m := note(kind(), name("name"), rapid.IntRange(0, 2).Draw(rt, "n"))
			switch rapid.IntRange(0, 5).Draw(rt, "how") {
			case 0:
				m.Absent = true
			case 1:
				m.Exists = true
			case 2:
				m.Match = &record.Match{Path: "n", Value: m.Doc.Lookup("n")}
			case 3:
				m.Doc = nil
			case 4:
				m.Doc, m.Exists = nil, true
			}
			return m
		}
		for range rapid.IntRange(0, 12).Draw(rt, "there") {
			m := note(kind(), name("there"), 0)
			for _, d := range []*direct{twin, below} {
				if err := d.Write(t.Context(), []record.Mutation{m}); err != nil {
					rt.Fatal(err)
				}
			}
		}
		below.writes = 0
		wrote := false
		err := together(t.Context(), func(ctx context.Context) error {
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				var got, want string
				switch rapid.SampledFrom([]string{"write", "write", "get", "list", "names", "select"}).Draw(rt, "step") {
				case "write":
					ms := []record.Mutation{mutation()}
					if second := mutation(); second.Key != ms[0].Key || second.Kind != ms[0].Kind {
						ms = append(ms, second)
					}
					got, want = said(0, batch.Write(ctx, ms)), said(0, twin.Write(ctx, ms))
					wrote = wrote || want == "0"
				case "get":
					kind, name := kind(), name("get")
					g, errG := batch.Get(ctx, kind, name)
					w, errW := twin.Get(ctx, kind, name)
					got, want = said(g.Doc.String(), errG), said(w.Doc.String(), errW)
				case "list":
					kind, prefix, after, limit := kind(), rapid.SampledFrom([]string{"", "k", "l"}).Draw(rt, "prefix"), rapid.SampledFrom(append(names, "")).Draw(rt, "after"), rapid.IntRange(1, 2).Draw(rt, "limit")
					got, want = said(texts(batch.List(ctx, kind, prefix, after, limit))), said(texts(twin.List(ctx, kind, prefix, after, limit)))
				case "names": // may have more than there are, never fewer
					kind := kind()
					g, errG := batch.ListNames(ctx, kind, "", "", 0)
					w, errW := texts(twin.List(ctx, kind, "", "", 0))
					if errG != nil || errW != nil || len(g) < len(w) || !slices.IsSorted(g) {
						rt.Fatalf("names %v %v, list %v %v", g, errG, w, errW)
					}
				case "select":
					sels := []record.Selector{{Kind: kind(), Key: record.StringKey(name("of")), Prefix: rapid.Bool().Draw(rt, "prefix")}}
					g, errG := texts(batch.Select(ctx, sels, true))
					w, errW := texts(twin.Select(ctx, sels, true))
					slices.Sort(g)
					slices.Sort(w)
					got, want = said(g, errG), said(w, errW)
				}
				if got != want {
					rt.Fatalf("got %s, want %s", got, want)
				}
			}
			if below.writes != 0 {
				rt.Fatal("something was written already")
			}
			return nil
		})
		if err != nil || below.writes > 1 || !wrote && below.writes > 0 {
			rt.Fatalf("%d writes, %v", below.writes, err)
		}
		if got, want := below.content(rt), twin.content(rt); got != want {
			rt.Fatalf("there is\n%s\nwant\n%s", got, want)
		}
	})
}

// TestJoinedOrNothing: an error writes nothing, what others change meanwhile has all of it made
// again, and a fence is told as it is.
func TestJoinedOrNothing(t *testing.T) {
	t.Parallel()
	d := newDirect(t)
	store, together := vrunner.Join(d)
	put := func(ctx context.Context, ms ...record.Mutation) {
		t.Helper()
		if err := store.Write(ctx, ms); err != nil {
			t.Error(err)
		}
	}
	put(t.Context(), note("a", "x", 1)) // outside of it: at once
	refused := errors.New("the second is refused")
	if err := together(t.Context(), func(ctx context.Context) error {
		put(ctx, note("a", "y", 1))
		return refused
	}); !errors.Is(err, refused) || d.writes != 1 {
		t.Errorf("after %d writes: %v", d.writes, err)
	}
	others, runs := 0, 0
	d.before = func() {
		if others++; others <= 2 {
			_ = d.Client.Write(context.Background(), d.tokens, []record.Mutation{note("a", "x", 10*others)})
		}
	}
	add := func(ctx context.Context) error {
		runs++
		rec, err := store.Get(ctx, "a", "x")
		if err != nil {
			return err
		}
		n, _ := rec.Doc.Lookup("n").AsInt64OK()
		put(ctx, note("a", "x", int(n)+1), note("b", "log", runs))
		return together(ctx, func(ctx context.Context) error { put(ctx, note("b", "inner", runs)); return nil })
	}
	if err := together(t.Context(), add); err != nil || runs != 3 {
		t.Errorf("after %d runs: %v", runs, err)
	}
	want := `{"_id": "x","n": {"$numberInt":"21"}}
{"_id": "inner","n": {"$numberInt":"3"}}
{"_id": "log","n": {"$numberInt":"3"}}`
	if got := d.content(t); got != want {
		t.Errorf("there is\n%s\nwant\n%s", got, want)
	}
	d.before = func() {
		_ = d.Client.Write(context.Background(), d.tokens, []record.Mutation{note("a", "x", d.writes)})
	}
	runs = 0
	if err := together(t.Context(), add); !errors.Is(err, record.ErrMismatch) || runs != 10 {
		t.Errorf("where others always come between, after %d runs: %v", runs, err)
	}
	d.before, d.tokens = nil, record.Tokens{"a": {Kind: "a", Name: "gone"}, "b": d.tokens["b"]}
	if err := together(t.Context(), func(ctx context.Context) error { return store.Write(ctx, []record.Mutation{note("b", "log", 0)}) }); err != nil {
		t.Error(err)
	}
	if err := together(t.Context(), func(ctx context.Context) error { return store.Write(ctx, []record.Mutation{note("a", "x", 0)}) }); !errors.Is(err, record.ErrFenced) {
		t.Errorf("fenced: %v", err)
	}
}
