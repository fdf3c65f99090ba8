package lens_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/lenstest"
	"dbcontroller.dev/transform/lens/internal/operation"
)

func fields(t *rapid.T, d bson.Raw) string {
	elems, err := d.Elements()
	if err != nil {
		t.Fatalf("%x: %v", []byte(d), err)
	}
	parts := map[string]string{}
	var order []string
	for _, e := range elems {
		v := e.Value()
		order = append(order, e.Key())
		if edit.HasItems(v.Type) {
			parts[e.Key()] = fields(t, v.Value)
		} else {
			parts[e.Key()] = fmt.Sprintf("%s %x", v.Type, v.Value)
		}
	}
	if len(parts) != len(order) {
		t.Fatalf("a field is there twice: %v", order)
	}
	return fmt.Sprint(parts)
}

// TestLawsOfDrawnLenses: whatever a lens, drawn at random, does not refuse, it can undo,
// and what is not changed comes out over its complement as the same bytes.
func TestLawsOfDrawnLenses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, text := lenstest.DrawLens(t)
		t.Logf("%s", text)
		upProgram, downProgram := l.Programs()
		for _, way := range []struct {
			name     string
			up, down operation.Program
		}{{"up", upProgram, downProgram}, {"down", downProgram, upProgram}} {
			x := lenstest.DrawRecord(t)
			before := bytes.Clone(x)
			y, err := way.up.Run(x, nil)
			if err != nil {
				var bad *lens.RecordError
				if !errors.As(err, &bad) {
					t.Fatalf("%s: the error of %s is no RecordError: %v", way.name, x, err)
				}
				continue
			}
			if err := y.Validate(); err != nil {
				t.Fatalf("%s: %s became %x: %v", way.name, x, []byte(y), err)
			}
			if a, b := remaining(t, x), remaining(t, y); a != b {
				t.Fatalf("%s: of %s the fields that no operation names became %s", way.name, a, b)
			}
			again, err := way.up.Run(x, y)
			if err != nil || !bytes.Equal(again, y) {
				t.Fatalf("%s: over its own result %s became %s (%v)", way.name, y, again, err)
			}
			back, err := way.down.Run(y, x)
			if err != nil {
				// Only a default that the application of this side would own can stand in the way.
				t.Fatalf("%s: %s became %s, which cannot go back: %v", way.name, x, y, err)
			}
			if !bytes.Equal(back, x) && !hasConstant(way.down.Ops) {
				t.Fatalf("%s: %s became %s and came back over itself as %s", way.name, x, y, back)
			}
			if !bytes.Equal(x, before) {
				t.Fatal("the source was written to")
			}
			if way.down.Keeps() || hasConstant(way.down.Ops) {
				continue
			}
			back, err = way.down.Run(y, nil)
			if err != nil || fields(t, back) != fields(t, x) {
				t.Fatalf("%s: %s became %s and came back as %s (%v)", way.name, x, y, back, err)
			}
		}
	})
}

// TestPutGetOfDrawnLenses: a record written over any other comes back as it was, and
// the fields that only the far side has stay.
func TestPutGetOfDrawnLenses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, text := lenstest.DrawLens(t)
		t.Logf("%s", text)
		upProgram, downProgram := l.Programs()
		for _, way := range []struct {
			name     string
			up, down operation.Program
		}{{"up", upProgram, downProgram}, {"down", downProgram, upProgram}} {
			x, other := lenstest.DrawRecord(t), lenstest.DrawRecord(t)
			have, err := way.up.Run(other, nil)
			if err != nil {
				continue
			}
			if rapid.Bool().Draw(t, "changed there") {
				// An application of the far side took out what it owns.
				have = dropHeld(t, have, way.up.Held)
			}
			y, err := way.up.Run(x, have)
			if err != nil {
				continue
			}
			again, err := way.up.Run(x, y)
			if err != nil || !bytes.Equal(again, y) {
				t.Fatalf("%s over %s: over its own result %s became %s (%v)", way.name, have, y, again, err)
			}
			back, err := way.down.Run(y, x)
			if err != nil || fields(t, back) != fields(t, x) && !hasConstant(way.down.Ops) {
				t.Fatalf("%s: %s over %s became %s and came back as %s (%v)", way.name, x, have, y, back, err)
			}
		}
	})
}

// dropHeld takes the fields out that only this side has, but for those in items.
func dropHeld(t *rapid.T, doc bson.Raw, held []operation.Holding) bson.Raw {
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		d = dropAt(d, h.Path)
	}
	return lenstest.Marshal(t, d)
}

func dropAt(d bson.D, p edit.Path) bson.D {
	if len(p) == 1 {
		return lenstest.Omit(d, string(p[0]))
	}
	for i := range d {
		if sub, ok := d[i].Value.(bson.D); ok && d[i].Key == string(p[0]) {
			d[i].Value = dropAt(sub, p[1:])
		}
	}
	return d
}

// remaining is what a record has of the fields that no drawn operation names.
func remaining(t *rapid.T, doc bson.Raw) string {
	elems, err := doc.Elements()
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for _, e := range elems {
		if e.Key() == "_id" || slices.Contains(lenstest.Untouched, e.Key()) {
			out += fmt.Sprintf("%x ", []byte(e))
		}
	}
	return out
}

// hasConstant: a constant may be written into a record that lacked it.
func hasConstant(ops []operation.Op) bool {
	return slices.ContainsFunc(ops, func(o operation.Op) bool {
		switch o := o.(type) {
		case *operation.Add:
			return o.Constant
		case *operation.Each:
			return hasConstant(o.Run.Ops)
		default:
			return false
		}
	})
}

func packagesLens(t testing.TB) *lens.Lens {
	t.Helper()
	const file = "../../examples/packages/packages.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lens.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func directions(t testing.TB, s transform.Spec) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", s); err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if down, err = r.Direction("v2", "v1"); err != nil {
		t.Fatal(err)
	}
	return up, down
}

// TestPackages takes every record of the sample there and back, through the engine's
// view of the lens.
func TestPackages(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	docs := lenstest.RealData(t, 0)
	up, down := directions(t, packagesLens(t).Spec("packages", "packages"))
	for _, d := range docs {
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		id, _, err := up.GroupOf("packages", key)
		if err != nil {
			t.Fatal(err)
		}
		old := transform.Group{Name: id.Name, Records: []record.Record{{Kind: "packages", Key: key, Doc: d}}}
		if up.NeedsHave(id) || down.NeedsHave(id) {
			t.Fatal("the lens of the sample needs no complement")
		}
		now, err := up.Transform(id, old, transform.Group{})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		back, err := down.Transform(id, transform.Group{Name: id.Name, Records: now}, transform.Group{})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if lenstest.Canonical(t, back[0].Doc) != lenstest.Canonical(t, d) {
			t.Fatalf("%s came back as %s", d, back[0].Doc)
		}
		if bytes.Equal(now[0].Doc, d) || now[0].Doc.Lookup("schema").Int32() != 2 {
			t.Fatalf("%s was not changed", key)
		}
	}
}

// TestLawsThroughTheEngine runs the laws that every transformer promises.
func TestLawsThroughTheEngine(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "rename: {from: section, to: category}", "move: {from: homepage, to: links.homepage}", "convert: {field: size, from: int, to: long}",
		"remove: {field: legacy, default: none}", "add: {field: state, default: new}")
	up, down := directions(t, l.Spec("packages", "packages"))
	ids := []any{"a", int32(5), int64(5), 5.5, bson.D{{Key: "n", Value: "a"}}}
	group := func(doc func(t *rapid.T, id any) bson.D) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			d := lenstest.Marshal(t, doc(t, rapid.SampledFrom(ids).Draw(t, "id")))
			key, err := record.KeyOfDoc(d)
			if err != nil {
				t.Fatal(err)
			}
			return []record.Record{{Kind: "packages", Key: key, Doc: d}}
		})
	}
	maybe := func(t *rapid.T, d bson.D, name string, values ...any) bson.D {
		if i := rapid.IntRange(0, len(values)).Draw(t, name); i > 0 {
			d = append(d, bson.E{Key: name, Value: values[i-1]})
		}
		return d
	}
	lawtest.Check(t, lawtest.Case{
		Up: up, Down: down, LossyUp: true, LossyDown: true,
		Old: group(func(t *rapid.T, id any) bson.D {
			d := maybe(t, bson.D{{Key: "_id", Value: id}}, "section", "x", 1)
			d = maybe(t, d, "legacy", "none", "old", nil)
			d = maybe(t, d, "homepage", "here")
			d = maybe(t, d, "size", int32(7))
			return maybe(t, d, "links", bson.D{{Key: "other", Value: 1}})
		}),
		New: group(func(t *rapid.T, id any) bson.D {
			d := maybe(t, bson.D{{Key: "_id", Value: id}}, "state", "new", 4)
			d = maybe(t, d, "links", bson.D{{Key: "homepage", Value: "here"}}, bson.D{{Key: "homepage", Value: "there"}, {Key: "other", Value: 1}})
			d = maybe(t, d, "size", int64(7), nil)
			return maybe(t, d, "category", "x")
		}),
	})
}
