package fanout_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// drawFan draws a fanOut or gather in any form, sensible or not.
func drawFan(t *rapid.T, n int) string {
	var b strings.Builder
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	as := pick("as", "list", "list", "map", "object")
	fmt.Fprintf(&b, "%s: {field: %s, as: %s, kind: kind%d, key: %s", pick("verb", "fanOut", "gather"), pick("field", "a", "b", "o.a"), as, n,
		pick("key", "'{_key}/{id}'", "'{_key}/{index}'", "'{_key}/{item.x}'", "'{_key}'", "'{id}'", "'k/{p}/{id}'", "'n/{p}/{index}'", "'{item.x}/{id}'", "'{_key}/{item.x}/{id}'",
			"'{_key:int}/{item._id:int}'", "{of: '{_key}', n: '{index}'}", "{id: '{id}', of: '{p:int}'}", "{of: '{_key}', i: '{item._id}'}", "'{p:int}/{id:int}'"))
	for _, option := range []string{"id: x", "id: _id", "value: v", "parent: owner", "order: at", "id: entry", "empty: present",
		"operations: [{rename: {from: n, to: m}}]", "operations: [{add: {field: y, default: 1}}, {remove: {field: n}}]", "operations: [{move: {from: n, to: q.n}}, {convert: {field: x, from: string, to: int}}]"} {
		key, _, _ := strings.Cut(option, ":")
		if !strings.Contains(b.String(), " "+key+":") && rapid.IntRange(0, 2).Draw(t, option) == 0 {
			b.WriteString(", " + option)
		}
	}
	return b.String() + "}"
}

// drawManyKinds draws a lens with several fans, key patterns and operations between.
func drawManyKinds(t *rapid.T) (*lens.Lens, string) {
	var head string
	switch rapid.IntRange(0, 4).Draw(t, "key") {
	case 0:
		head = "key: {from: 'k/{p}', to: 'n/{p}'}\n"
	case 1:
		head = "key: {from: 'k/{p}', to: 'n/{r}/{p}', with: {r: {field: r}}}\n"
	case 2:
		head = "key: {from: '{p:int}', to: {v: 1, p: '{p:long}'}}\n"
	case 3:
		head = "key: {from: '{p:int}', to: 'n/{p}'}\n"
	}
	kept := head + "operations:"
	l, err := lens.Parse("drawn.yaml", []byte(head+"operations: []"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range rapid.IntRange(1, 4).Draw(t, "operations") {
		o := drawFan(t, n)
		if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
			o = rapid.SampledFrom([]string{"rename: {from: a, to: c}", "rename: {from: o, to: p}", "move: {from: b, to: o.b}", "add: {field: z, default: 1}"}).Draw(t, "which")
		}
		longer := kept + "\n  - " + o
		if next, err := lens.Parse("drawn.yaml", []byte(longer)); err == nil {
			l, kept = next, longer
		}
	}
	return l, kept
}

func drawItem(t *rapid.T) any {
	if rapid.IntRange(0, 9).Draw(t, "item") == 0 {
		return rapid.SampledFrom([]any{1, "s", nil, bson.A{}}).Draw(t, "odd item")
	}
	d := bson.D{}
	if rapid.IntRange(0, 5).Draw(t, "x") > 0 {
		d = append(d, bson.E{Key: "x", Value: rapid.SampledFrom([]any{"1", "2", "3", "4", 5}).Draw(t, "x")})
	}
	d = lenstest.Maybe(t, lenstest.Maybe(t, d, "n", 1, nil), "q", bson.D{}, bson.D{{Key: "w", Value: 1}})
	return lenstest.Maybe(t, d, "_id", 1, "1", bson.D{{Key: "a", Value: 2.5}})
}

func drawField(t *rapid.T, d bson.D, name string) bson.D {
	switch rapid.IntRange(0, 6).Draw(t, name) {
	case 0:
		return d
	case 1:
		return append(d, bson.E{Key: name})
	case 2, 3, 4:
		list := bson.A{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawItem(t))
		}
		return append(d, bson.E{Key: name, Value: list})
	}
	m := bson.D{}
	for _, entry := range rapid.Permutation([]string{"e", "f", "g"}).Draw(t, "entries")[:rapid.IntRange(0, 3).Draw(t, "entries")] {
		m = append(m, bson.E{Key: entry, Value: drawItem(t)})
	}
	return append(d, bson.E{Key: name, Value: m})
}

// TestLawsOfDrawnKinds: whatever a lens over several kinds, drawn at random, does not
// refuse, it can undo, and what is not changed comes out over itself as the same bytes.
func TestLawsOfDrawnKinds(t *testing.T) {
	t.Parallel()
	there := 0
	rapid.Check(t, func(t *rapid.T) {
		l, text := drawManyKinds(t)
		t.Logf("%s", text)
		s := l.Spec("old", "new")
		for _, way := range []struct {
			up, down transform.Func
			from     string
			names    []any
		}{{s.Up, s.Down, "old", []any{"k/1", int32(1)}}, {s.Down, s.Up, "new", []any{"n/1", bson.D{{Key: "v", Value: 1}, {Key: "p", Value: int64(1)}}, int32(1)}}} {
			d := bson.D{{Key: "_id", Value: rapid.SampledFrom(way.names).Draw(t, "name")}, {Key: "r", Value: "eu"}}
			d = drawField(t, drawField(t, d, "a"), "b")
			if rapid.Bool().Draw(t, "o") {
				d = append(d, bson.E{Key: "o", Value: drawField(t, bson.D{{Key: "k", Value: 1}}, "a")})
			}
			x := []record.Record{lenstest.Record(t, way.from, d)}
			kept := bytes.Clone(x[0].Doc)
			y, err := lenstest.Take(way.up, x, nil)
			if err != nil {
				continue
			}
			there++
			again, err := lenstest.Take(way.up, x, y)
			if err != nil || !lenstest.SameBytes(again, y) {
				t.Fatalf("from %s: %s\nbecame\n%s\nand over that\n%s\n(%v)", way.from, x[0].Doc, lines(y), lines(again), err)
			}
			back, err := lenstest.Take(way.down, y, x)
			if err != nil || !lenstest.SameBytes(back, x) {
				t.Fatalf("from %s: %s\nbecame\n%s\nand came back as\n%s\n(%v)", way.from, x[0].Doc, lines(y), lines(back), err)
			}
			if !bytes.Equal(x[0].Doc, kept) {
				t.Fatal("the source was written to")
			}
			if _, err := lenstest.Take(way.down, y, nil); err != nil {
				t.Fatalf("from %s: %s\nbecame\n%s\nwhich cannot go back alone: %v", way.from, x[0].Doc, lines(y), err)
			}
			groups(t, s, x, y, way.from == "old")
		}
	})
	if there == 0 && !raced.FewDrawn() {
		t.Error("nothing was tested")
	}
}

// groups checks that every record names the same group.
func groups(t *rapid.T, s transform.Spec, x, y []record.Record, up bool) {
	old, now := x, y
	if !up {
		old, now = y, x
	}
	var want string
	for i, side := range []struct {
		kinds   []transform.GroupedKind
		records []record.Record
	}{{s.Old.Kinds, old}, {s.New.Kinds, now}} {
		for _, r := range side.records {
			for _, k := range side.kinds {
				if k.Name != r.Kind {
					continue
				}
				group, err := string(r.Key), error(nil)
				switch {
				case k.Content != nil:
					group, err = k.Content(r)
				case k.GroupOf != nil:
					group, err = k.GroupOf(r.Key)
				}
				if want == "" {
					want = group
				}
				if err != nil || group != want {
					t.Fatalf("side %d: %s %s is in group %q, not %q (%v)", i, r.Kind, r.Key, group, want, err)
				}
			}
		}
	}
}

func lines(rs []record.Record) string {
	var out []string
	for _, r := range rs {
		out = append(out, "  "+r.Kind+" "+r.Doc.String())
	}
	return strings.Join(out, "\n")
}
