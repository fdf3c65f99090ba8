// Package lawtest checks, on generated groups, the laws that every transformer promises. Only tests
// import it. A group is a set of records that transform together. A transformer converts groups of
// an old version to a new one (Up) and back (Down). The complement (have) is the other side's
// present content of a group; fields that the source lacks come from it.
//
// The laws, for a group x of the old version and a group y of the new one:
//
//   - round trip: Down(Up(x)) equals x, whatever the new side held before. This holds for generated
//     groups of the old version, and for results of Down. If Down needs its complement, Down over x
//     gives x byte for byte.
//   - get-put: Up(Down(y), have y) equals y, so fields that the old version cannot hold survive. If
//     Up needs its complement, the result is equal byte for byte.
//   - put-get: Up(Down(y, have x), have y) equals y. A change of the new version survives the way
//     through the old one, and takes nothing from x.
//   - accepted: the direction refuses no result. It takes every result back before it returns it
//     (transform.Reversal).
//   - stable: a result transformed again over itself is equal byte for byte. The engine's check
//     before the flip relies on this.
//   - pure: equal inputs give equal bytes, and inputs are not modified.
//   - deleted: no source records give no target records.
//   - lineage: for groups by content, each record of a group and each of its results names that
//     group.
//
// Comparisons ignore the order of fields, because a round trip may move a field to the end. "Byte
// for byte" includes the order.
//
// The package does not check the declarations of a Spec; Registry.Add does. It does not check
// storage either: only a test with an engine shows that a record which moves between groups leaves
// nothing behind.
//
// Begin with Case and Check.
package lawtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Case is a pair of directions with a generator of whole groups for each side. A group has at least
// one record. Both generators should draw from few keys, so that old and new groups often are the
// same group.
type Case struct {
	Up, Down transform.Direction
	Old, New *rapid.Generator[[]record.Record]
	// LossyUp means that the new version cannot hold all of an old group, so a round trip of x
	// needs x as its complement. LossyDown means that a round trip of y needs y as its complement.
	LossyUp, LossyDown bool
}

// Check tests the laws as subtests of t.
func Check(t *testing.T, c Case) {
	t.Helper()
	t.Run("accepted", rapid.MakeCheck(func(t *rapid.T) {
		for _, way := range c.ways() {
			src := way.src.Draw(t, "src")
			put(t, way.dir, src, way.over(t, src))
		}
	}))
	// Without the reversal check, a failure names the broken law.
	c.Up, c.Down = transform.Unchecked(c.Up), transform.Unchecked(c.Down)
	t.Run("round trip", rapid.MakeCheck(func(t *rapid.T) {
		x := c.Old.Draw(t, "x")
		up := put(t, c.Up, x, nil)
		if !c.LossyUp {
			same(t, "Down(Up(x)) is x", put(t, c.Down, up, nil), x)
		}
		// With the complement nothing may be lost, whatever the lossy flags.
		unchanged(t, c.Down, "Down(Up(x), have x) is x", put(t, c.Down, up, x), x)
	}))
	t.Run("projection after promotion", rapid.MakeCheck(func(t *rapid.T) {
		// Generators of old records may miss states that only Down makes.
		x := put(t, c.Down, c.New.Draw(t, "y"), nil)
		up := put(t, c.Up, x, nil)
		if !c.LossyUp {
			same(t, "Down(Up(x)) is x for x = Down(y)", put(t, c.Down, up, nil), x)
		}
		same(t, "Down(Up(x), have x) is x for x = Down(y)", put(t, c.Down, up, x), x)
	}))
	t.Run("round trip over any complement", rapid.MakeCheck(func(t *rapid.T) {
		x := c.Old.Draw(t, "x")
		have := rekeyed(c.Up, c.Down, x, c.New.Draw(t, "have"))
		// The draws are independent. Groups that do not match say nothing about this law.
		if have == nil {
			return
		}
		up := put(t, c.Up, x, have)
		if !c.LossyUp {
			same(t, "Down(Up(x, have y)) is x", put(t, c.Down, up, nil), x)
		}
		same(t, "Down(Up(x, have y), have x) is x", put(t, c.Down, up, x), x)
	}))
	t.Run("get-put", rapid.MakeCheck(func(t *rapid.T) {
		y := c.New.Draw(t, "y")
		// Down gets no complement: an old record may be new.
		down := put(t, c.Down, y, nil)
		unchanged(t, c.Up, "Up(Down(y), have y) is y", put(t, c.Up, down, y), y)
		if !c.LossyDown {
			same(t, "Up(Down(y)) is y", put(t, c.Up, down, nil), y)
		}
	}))
	t.Run("put-get", rapid.MakeCheck(func(t *rapid.T) {
		y := c.New.Draw(t, "y")
		x := rekeyed(c.Down, c.Up, y, c.Old.Draw(t, "x"))
		if x == nil {
			return
		}
		same(t, "Up(Down(y, have x), have y) is y", put(t, c.Up, put(t, c.Down, y, x), y), y)
	}))
	t.Run("stable", rapid.MakeCheck(func(t *rapid.T) {
		for _, way := range c.ways() {
			src := way.src.Draw(t, "src")
			// Start from any state of the target, then transform over the result.
			once := put(t, way.dir, src, way.over(t, src))
			exactly(t, "T(src, have T(src)) is T(src)", put(t, way.dir, src, once), once)
		}
	}))
	t.Run("pure", rapid.MakeCheck(func(t *rapid.T) {
		x := c.Old.Draw(t, "x")
		have := rekeyed(c.Up, c.Down, x, c.New.Draw(t, "have"))
		// Deep copies: a transformer may write into the documents.
		kept, keptHave := clone(x), clone(have)
		first := clone(put(t, c.Up, x, have))
		second := put(t, c.Up, x, have)
		exactly(t, "twice the same", second, first)
		exactly(t, "source not written to", x, kept)
		exactly(t, "complement not written to", have, keptHave)
	}))
	t.Run("deleted", rapid.MakeCheck(func(t *rapid.T) {
		y := c.New.Draw(t, "y")
		id := group(t, c.Down, y[0])
		// Call Transform itself: put skips empty groups, like the engine.
		out, err := c.Up.Transform(id, transform.Group{Name: id.Name}, transform.Group{Name: id.Name, Records: y})
		if err != nil || len(out) != 0 {
			t.Fatalf("deleted group: %d records, error %v", len(out), err)
		}
	}))
	t.Run("lineage", rapid.MakeCheck(func(t *rapid.T) {
		lineage(t, c.Up, c.Down, c.Old.Draw(t, "x"))
		lineage(t, c.Down, c.Up, c.New.Draw(t, "y"))
	}))
}

// way is one direction of a case, with generators for the source and for the complement.
type way struct {
	dir, back transform.Direction
	src, tgt  *rapid.Generator[[]record.Record]
}

func (c Case) ways() []way {
	return []way{{c.Up, c.Down, c.Old, c.New}, {c.Down, c.Up, c.New, c.Old}}
}

// over draws a complement for the group of src, or none.
func (w way) over(t *rapid.T, src []record.Record) []record.Record {
	if !rapid.Bool().Draw(t, "over something") {
		return nil
	}
	return rekeyed(w.dir, w.back, src, w.tgt.Draw(t, "have"))
}

// lineage checks groups by content. Other groups follow from the key alone.
func lineage(t *rapid.T, d, back transform.Direction, src []record.Record) {
	t.Helper()
	id := group(t, d, src[0])
	if d.LineageKind(id.Spec) == "" {
		return
	}
	for _, r := range src {
		if got := group(t, d, r); got != id {
			t.Fatalf("law broken: %s %s names group %q, and %s %s of the same group names %q", r.Kind, r.Key, got.Name, src[0].Kind, src[0].Key, id.Name)
		}
	}
	for _, r := range put(t, d, src, nil) {
		if got := group(t, back, r); got != id {
			t.Fatalf("law broken: %s %s names group %q, and was made of group %q", r.Kind, r.Key, got.Name, id.Name)
		}
	}
}

// rekeyed returns have if it belongs to the same group as src, and nil otherwise.
func rekeyed(d, back transform.Direction, src, have []record.Record) []record.Record {
	// A generated record may have no group. Then the law does not apply.
	a, _, err := groupOf(d, src[0])
	if err != nil {
		return nil
	}
	b, _, err := groupOf(back, have[0])
	if err != nil || a != b {
		return nil
	}
	return have
}

// groupOf returns the group of a record of d's source. Both directions of a step number their specs
// alike, so it is also the group of the target in the other direction.
func groupOf(d transform.Direction, r record.Record) (transform.GroupID, bool, error) {
	id, ok, err := d.GroupOf(r.Kind, r.Key)
	if err == nil && ok && d.LineageKind(id.Spec) != "" {
		id.Name, err = d.ContentOf(r)
	}
	return id, ok, err
}

func group(t *rapid.T, d transform.Direction, r record.Record) transform.GroupID {
	t.Helper()
	id, ok, err := groupOf(d, r)
	if err != nil || !ok {
		t.Fatalf("group of %s %s: part of the direction: %t, error %v", r.Kind, r.Key, ok, err)
	}
	return id
}

// put transforms like the engine: it passes the complement only on request.
func put(t *rapid.T, d transform.Direction, src, have []record.Record) []record.Record {
	t.Helper()
	if len(src) == 0 {
		return nil
	}
	id := group(t, d, src[0])
	if !d.NeedsHave(id) {
		have = nil
	}
	out, err := d.Transform(id, transform.Group{Name: id.Name, Records: ordered(src)}, transform.Group{Name: id.Name, Records: ordered(have)})
	if err != nil {
		t.Fatalf("%s to %s: %v\nsource:\n%s\nhave:\n%s", d.From(), d.To(), err, show(src), show(have))
	}
	return out
}

func ordered(rs []record.Record) []record.Record {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b record.Record) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return strings.Compare(string(a.Key), string(b.Key))
	})
	return rs
}

func clone(rs []record.Record) []record.Record {
	out := slices.Clone(rs)
	for i := range out {
		out[i].Doc = bytes.Clone(out[i].Doc)
	}
	return out
}

func same(t *rapid.T, law string, got, want []record.Record) {
	t.Helper()
	compare(t, law, got, want, func(a, b bson.Raw) bool { return bytes.Equal(sorted(a), sorted(b)) })
}

func exactly(t *rapid.T, law string, got, want []record.Record) {
	t.Helper()
	compare(t, law, got, want, func(a, b bson.Raw) bool { return bytes.Equal(a, b) })
}

// unchanged checks a result over a complement that it must equal. If the direction reads the
// complement, it must be equal byte for byte.
func unchanged(t *rapid.T, d transform.Direction, law string, got, have []record.Record) {
	t.Helper()
	same(t, law, got, have)
	// A direction that does not read the complement cannot know its order of fields.
	if id, ok, err := d.GroupOfTarget(have[0].Kind, have[0].Key); ok && err == nil && d.NeedsHave(id) {
		exactly(t, law+", to the byte", got, have)
	}
}

func compare(t *rapid.T, law string, got, want []record.Record, equal func(a, b bson.Raw) bool) {
	t.Helper()
	got, want = ordered(got), ordered(want)
	if !slices.EqualFunc(got, want, func(a, b record.Record) bool {
		return a.Kind == b.Kind && a.Key == b.Key && equal(a.Doc, b.Doc)
	}) {
		t.Fatalf("law broken: %s\ngot:\n%s\nwant:\n%s", law, show(got), show(want))
	}
}

// sorted returns a document with the fields of every object in name order. Without it, documents
// with another order of fields are not comparable.
func sorted(doc bson.Raw) bson.Raw {
	elems, err := doc.Elements()
	if err != nil {
		return doc
	}
	d := make(bson.D, len(elems))
	for i, e := range elems {
		d[i] = bson.E{Key: e.Key(), Value: sortedValue(e.Value())}
	}
	slices.SortStableFunc(d, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	out, err := bson.Marshal(d)
	if err != nil {
		return doc
	}
	return out
}

func sortedValue(v bson.RawValue) bson.RawValue {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return bson.RawValue{Type: v.Type, Value: sorted(bson.Raw(v.Value))}
	case bson.TypeArray:
		// Items keep their order, which has a meaning. Only their fields are sorted.
		values, err := bson.RawArray(v.Value).Values()
		if err != nil {
			return v
		}
		a := make(bson.A, len(values))
		for i, e := range values {
			a[i] = sortedValue(e)
		}
		if t, b, err := bson.MarshalValue(a); err == nil {
			return bson.RawValue{Type: t, Value: b}
		}
	}
	return v
}

func show(rs []record.Record) string {
	if len(rs) == 0 {
		return "  (nothing)"
	}
	lines := make([]string, len(rs))
	for i, r := range rs {
		doc, err := bson.MarshalExtJSON(r.Doc, true, false)
		if err != nil {
			// A malformed document still has to appear in the failure.
			doc = fmt.Appendf(nil, "%x (%v)", []byte(r.Doc), err)
		}
		lines[i] = fmt.Sprintf("  %s %s %s", r.Kind, r.Key, doc)
	}
	return strings.Join(lines, "\n")
}
