package proxy

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// TestCut: all elements of the names go, wherever they stand, and without changes the document itself.
func TestCut(t *testing.T) {
	for _, c := range []struct{ from, want string }{
		{`{}`, `{}`},
		{`{"a": 1}`, `{"a": 1}`},
		{`{"x": 1}`, `{}`},
		{`{"a": 1, "x": {"b": 2}, "c": 3}`, `{"a": 1, "c": 3}`},
		{`{"x": 1, "a": 2, "y": [1, 2], "b": {"x": 1}}`, `{"a": 2, "b": {"x": 1}}`},
	} {
		from := doc(t, c.from)
		kept := slices.Clone(from)
		out, err := without(from, "x", "y")
		if err != nil || !slices.Equal(out, doc(t, c.want)) {
			t.Errorf("without of %s: %s, %v", c.from, out, err)
		}
		if !slices.Equal(from, kept) {
			t.Errorf("without has changed %s", c.from)
		}
		if out, err = cut(from, "x", "y"); err != nil || !slices.Equal(out, doc(t, c.want)) {
			t.Errorf("cut of %s: %s, %v", c.from, out, err)
		}
	}
	twice := bsoncore.NewDocumentBuilder().AppendInt32("x", 1).AppendInt32("a", 2).AppendInt32("x", 3).Build()
	if out, err := cut(twice, "x"); err != nil || !slices.Equal(out, doc(t, `{"a": 2}`)) {
		t.Errorf("a name that stands there twice: %s, %v", out, err)
	}
	whole := doc(t, `{"a": "text", "x": 1}`)
	for n := range len(whole) {
		if out, err := without(whole[:n], "x"); err == nil {
			t.Errorf("the first %d bytes: %s", n, out)
		}
	}
}
