package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// doc is a document {_id, n} or, with parts, {_id, n, parts}.
func doc(name string, n int, more ...bson.E) bson.Raw {
	b, err := bson.Marshal(append(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(n)}}, more...))
	if err != nil {
		panic(err)
	}
	return b
}

func whole(name string, n, parts int) bson.Raw {
	return doc(name, n, bson.E{Key: "parts", Value: int32(parts)})
}

// split turns a whole of N parts into a head and N parts. A negative n is poison.
func split(src, _ transform.Group) ([]record.Record, error) {
	name, _ := src.Records[0].Key.Name()
	var w struct{ N, Parts int }
	if err := bson.Unmarshal(src.Records[0].Doc, &w); err != nil {
		return nil, err
	}
	if w.N < 0 {
		return nil, errors.New("n is negative")
	}
	out := []record.Record{{Kind: "heads", Key: record.StringKey(name), Doc: doc(name, w.N)}}
	for i := range w.Parts {
		part := fmt.Sprintf("%s/%d", name, i)
		out = append(out, record.Record{Kind: "parts", Key: record.StringKey(part), Doc: doc(part, w.N)})
	}
	return out, nil
}

func join(src, _ transform.Group) ([]record.Record, error) {
	head := src.Records[0]
	if head.Kind != "heads" {
		return nil, errors.New("no head")
	}
	name, _ := head.Key.Name()
	var h struct{ N int }
	if err := bson.Unmarshal(head.Doc, &h); err != nil {
		return nil, err
	}
	return []record.Record{{Kind: "wholes", Key: head.Key, Doc: whole(name, h.N, len(src.Records)-1)}}, nil
}

// world is a source and a target that are in sync: whole "a" of no parts up to "e" of four.
type world struct {
	old, new         *memstore.Store
	oldToks, newToks record.Tokens
	up, down         *verify.Comparer
}

func (w *world) oldView() transform.View { return transform.View{Tokens: w.oldToks} }
func (w *world) newView() transform.View { return transform.View{Tokens: w.newToks} }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{old: memstore.New(), new: memstore.New(), oldToks: record.Tokens{}, newToks: record.Tokens{}}
	for kind, at := range map[string]struct {
		s    *memstore.Store
		toks record.Tokens
	}{"wholes": {w.old, w.oldToks}, "heads": {w.new, w.newToks}, "parts": {w.new, w.newToks}} {
		tok, err := at.s.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		at.toks[kind] = tok
	}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		w.put(t, "wholes", name, whole(name, i, i))
		w.put(t, "heads", name, doc(name, i))
		for j := range i {
			part := fmt.Sprintf("%s/%d", name, j)
			w.put(t, "parts", part, doc(part, i))
		}
	}
	up, down := directions(t)
	w.up, w.down = verify.New(w.old, w.new, up), verify.New(w.new, w.old, down)
	return w
}

// directions are the two of wholes, and heads with parts.
func directions(t *testing.T) (up, down transform.Direction) {
	t.Helper()
	reg := transform.NewRegistry("test")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "split", Revision: "1", Up: split, Down: join, Reversal: transform.ReversalNone, // what parts hold is lost
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "wholes"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "heads"}},
			{
				KindSpec: record.KindSpec{Name: "parts"},
				GroupOf: func(k record.Key) (string, error) {
					name, _ := k.Name()
					head, _, ok := strings.Cut(name, "/")
					if !ok {
						return "", errors.New("no slash")
					}
					return string(record.StringKey(head)), nil
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					return record.Selector{Key: record.StringKey(name + "/"), Prefix: true}
				},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if up, err = reg.Direction("v1", "v2"); err != nil {
		t.Fatal(err)
	}
	if down, err = reg.Direction("v2", "v1"); err != nil {
		t.Fatal(err)
	}
	return up, down
}

// put writes a record, or deletes it with a nil document.
func (w *world) put(t *testing.T, kind, name string, d bson.Raw) {
	t.Helper()
	s, toks := w.new, w.newToks
	if kind == "wholes" {
		s, toks = w.old, w.oldToks
	}
	if err := s.Write(t.Context(), toks, []record.Mutation{{Kind: kind, Key: record.StringKey(name), Doc: d}}); err != nil {
		t.Fatal(err)
	}
}

func group(name string) transform.GroupID {
	return transform.GroupID{Name: string(record.StringKey(name))}
}

func names(ids []transform.GroupID) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, record.Key(id.Name).String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type pager func(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error)

// pages compares kinds page by page and returns who differs, and how many were compared.
func pages(t *testing.T, page pager, src, dst transform.View, limit int, kinds ...string) (differ []string, compared int) {
	t.Helper()
	var ids []transform.GroupID
	for _, kind := range kinds {
		for rest, done, n := (record.Range{}), false, 0; !done; n++ {
			if n > 100 {
				t.Fatalf("%s does not end", kind)
			}
			c, err := page(t.Context(), src, dst, kind, rest, limit)
			if err != nil {
				t.Fatal(err)
			}
			if c.Compared > limit {
				t.Errorf("%d groups on a page of %d records", c.Compared, limit)
			}
			ids, compared = append(ids, c.Differ...), compared+c.Compared
			rest, done = c.Next, c.Done
		}
	}
	return names(ids), compared
}

var once = verify.Recheck{Tries: 1}

// TestDifferences: each kind of difference is found by those who can see it, however
// small the pages are.
func TestDifferences(t *testing.T) {
	t.Parallel()
	reordered, err := bson.Marshal(bson.D{{Key: "n", Value: int32(2)}, {Key: "_id", Value: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	for label, tc := range map[string]struct {
		spoil          func(t *testing.T, w *world)
		differ         string // the group
		source, target bool   // whether pages of the source, and of the target, meet it
		down           bool   // whether it is a difference for the rollback too
	}{
		"none":                   {spoil: func(*testing.T, *world) {}},
		"missing group":          {func(t *testing.T, w *world) { w.put(t, "heads", "a", nil) }, "a", true, false, true},
		"missing head":           {func(t *testing.T, w *world) { w.put(t, "heads", "c", nil) }, "c", true, false, true},
		"missing part":           {func(t *testing.T, w *world) { w.put(t, "parts", "c/1", nil) }, "c", true, false, true},
		"extra group":            {func(t *testing.T, w *world) { w.put(t, "wholes", "c", nil) }, "c", false, true, true},
		"extra part":             {func(t *testing.T, w *world) { w.put(t, "parts", "c/9", doc("c/9", 2)) }, "c", true, false, true},
		"extra part of nothing":  {func(t *testing.T, w *world) { w.put(t, "parts", "x/0", doc("x/0", 2)) }, "x", false, true, true},
		"changed in the source":  {func(t *testing.T, w *world) { w.put(t, "wholes", "c", whole("c", 7, 2)) }, "c", true, false, true},
		"changed in the target":  {func(t *testing.T, w *world) { w.put(t, "heads", "c", doc("c", 7)) }, "c", true, false, true},
		"changed part":           {func(t *testing.T, w *world) { w.put(t, "parts", "c/1", doc("c/1", 7)) }, "c", true, false, false},
		"an _id written last":    {spoil: func(t *testing.T, w *world) { w.put(t, "heads", "c", reordered) }}, // it is stored first
		"cannot be transformed":  {func(t *testing.T, w *world) { w.put(t, "wholes", "c", whole("c", -1, 2)) }, "c", true, false, true},
		"another type of number": {func(t *testing.T, w *world) { w.put(t, "heads", "c", number("c", int64(2))) }, "c", true, false, false},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.spoil(t, w)
			want := func(where string, have []string, expected bool) {
				t.Helper()
				if expected && !slices.Equal(have, []string{tc.differ}) || !expected && len(have) > 0 {
					t.Errorf("%s: %v differ, want %q: %t", where, have, tc.differ, expected)
				}
			}
			all := []transform.GroupID{group("a"), group("b"), group("c"), group("d"), group("e"), group("x")}
			found, err := w.up.Groups(t.Context(), w.oldView(), w.newView(), all)
			if err != nil {
				t.Fatal(err)
			}
			want("groups up", names(transform.Names(found)), tc.differ != "")
			if found, err = w.down.Groups(t.Context(), w.newView(), w.oldView(), all); err != nil {
				t.Fatal(err)
			}
			want("groups down", names(transform.Names(found)), tc.down)
			for _, limit := range []int{1, 2, 3, 1000} {
				differ, _ := pages(t, w.up.SourcePage, w.oldView(), w.newView(), limit, "wholes")
				want(fmt.Sprintf("source pages of %d", limit), differ, tc.source)
				differ, _ = pages(t, w.up.TargetPage, w.oldView(), w.newView(), limit, "heads", "parts")
				want(fmt.Sprintf("target pages of %d", limit), differ, tc.target)
				source, _ := pages(t, w.down.SourcePage, w.newView(), w.oldView(), limit, "heads", "parts")
				target, _ := pages(t, w.down.TargetPage, w.newView(), w.oldView(), limit, "wholes")
				both := append(source, target...)
				slices.Sort(both)
				want(fmt.Sprintf("pages down of %d", limit), slices.Compact(both), tc.down)
			}
			rep, err := w.up.Run(t.Context(), w.oldView(), w.newView(), once, nil)
			if err != nil {
				t.Fatal(err)
			}
			want("run up", rep.Examples, tc.differ != "")
			if rep.Mismatched != int64(len(rep.Examples)) || rep.Compared == 0 {
				t.Errorf("report %+v", rep)
			}
			if rep, err = w.down.Run(t.Context(), w.newView(), w.oldView(), once, nil); err != nil {
				t.Fatal(err)
			}
			want("run down", rep.Examples, tc.down)
		})
	}
}

func number(name string, n any) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: n}})
	if err != nil {
		panic(err)
	}
	return b
}

// TestEveryGroupIsCompared: small pages cut groups of the source apart, and none may be
// lost at a cut.
func TestEveryGroupIsCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.put(t, "heads", name, doc(name, 99))
	}
	for limit := 1; limit < 7; limit++ {
		differ, compared := pages(t, w.up.SourcePage, w.oldView(), w.newView(), limit, "wholes")
		if len(differ) != 5 || compared != 5 {
			t.Errorf("pages of %d: %d compared, %v differ", limit, compared, differ)
		}
		if differ, _ = pages(t, w.down.SourcePage, w.newView(), w.oldView(), limit, "heads", "parts"); len(differ) != 5 {
			t.Errorf("pages down of %d: %v differ", limit, differ)
		}
	}
}

// TestKeysWithoutGroup: one of the target belongs to nothing that the source could have.
func TestKeysWithoutGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(t, "parts", "no-slash", doc("no-slash", 1))
	w.put(t, "parts", "zz/0", doc("zz/0", 1))
	rep, err := w.up.Run(t.Context(), w.oldView(), w.newView(), once, nil)
	if err != nil || rep.Mismatched != 2 || !slices.Equal(rep.Examples, []string{"zz", "parts no-slash (in the target alone)"}) {
		t.Errorf("%+v, %v", rep, err)
	}
}

// TestFenced: a comparison with a token that is over returns that, and no difference.
func TestFenced(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"wholes", "heads", "parts"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s, tok := w.new, w.newToks[kind]
			if kind == "wholes" {
				s, tok = w.old, w.oldToks[kind]
			}
			if err := s.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: tok, To: kind + ".n2"}); err != nil {
				t.Fatal(err)
			}
			fenced := func(where string, err error) {
				t.Helper()
				if !errors.Is(err, record.ErrFenced) {
					t.Errorf("%s: %v", where, err)
				}
			}
			_, err := w.up.Groups(t.Context(), w.oldView(), w.newView(), []transform.GroupID{group("a")})
			fenced("groups", err)
			_, err = w.up.SourcePage(t.Context(), w.oldView(), w.newView(), "wholes", record.Range{}, 10)
			fenced("source page", err)
			for _, target := range []string{"heads", "parts"} {
				_, err = w.up.TargetPage(t.Context(), w.oldView(), w.newView(), target, record.Range{}, 10)
				if kind == "wholes" || kind == target {
					fenced("target page", err)
				} else if err != nil { // of a kind that it does not read while there are no strays
					t.Errorf("target page of %s: %v", target, err)
				}
			}
			_, err = w.up.Run(t.Context(), w.oldView(), w.newView(), once, nil)
			fenced("run", err)
		})
	}
}
