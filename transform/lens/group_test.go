package lens_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
)

// parsed reads a lens that must be right.
func parsed(t testing.TB, text string) *lens.Lens {
	t.Helper()
	l, err := lens.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set := lens.NewSet()
	set.Add("old", "new", l)
	if err := set.Link(); err != nil {
		t.Fatal(err)
	}
	return l
}

// ways are both directions of a lens from kind old to kind new.
func ways(t testing.TB, l *lens.Lens, options ...lens.SpecOption) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", l.Spec("old", "new", options...)); err != nil {
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

// rec makes a record of a document, its _id first.
func rec(t interface{ Fatal(...any) }, kind string, d bson.D) record.Record {
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: raw}
}

// fromJSON makes records of lines "kind {extended JSON}".
func fromJSON(t testing.TB, lines ...string) []record.Record {
	t.Helper()
	var out []record.Record
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, " ")
		var raw bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(text), false, &raw); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		key, err := record.KeyOfDoc(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, record.Record{Kind: kind, Key: key, Doc: raw})
	}
	transform.SortRecords(out)
	return out
}

// shown writes records as fromJSON reads them.
func shown(t testing.TB, rs []record.Record) string {
	t.Helper()
	var lines []string
	for _, r := range rs {
		text, err := bson.MarshalExtJSON(r.Doc, false, false)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", r.Kind, text))
	}
	return strings.Join(lines, "\n")
}

// taken runs a spec as the engine does, with records in their order.
func taken(f transform.Func, src, have []record.Record) ([]record.Record, error) {
	src, have = slices.Clone(src), slices.Clone(have)
	transform.SortRecords(src)
	transform.SortRecords(have)
	out, err := f(transform.Group{Records: src}, transform.Group{Records: have})
	transform.SortRecords(out)
	return out, err
}

// mustTake is taken without an error.
func mustTake(t testing.TB, f transform.Func, src, have []record.Record) []record.Record {
	t.Helper()
	out, err := taken(f, src, have)
	if err != nil {
		t.Fatalf("%v\nof %s", err, shown(t, src))
	}
	return out
}

// maybe adds a field with one of several values, or leaves it out.
func maybe(t *rapid.T, d bson.D, name string, values ...any) bson.D {
	if i := rapid.IntRange(0, len(values)).Draw(t, name); i > 0 {
		d = append(d, bson.E{Key: name, Value: values[i-1]})
	}
	return d
}

// laws checks the laws of a lens from kind old to kind new, whose groups go by name.
func laws(t *testing.T, l *lens.Lens, lossyUp, lossyDown bool, old, now func(*rapid.T) []record.Record) {
	t.Helper()
	up, down := ways(t, l)
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, LossyUp: lossyUp, LossyDown: lossyDown, Old: rapid.Custom(old), New: rapid.Custom(now)})
}
