package lens

import (
	"strings"
	"testing"
)

// TestIndexesOfManyKinds: what would mean something else among other kinds and keys is
// refused by name.
func TestIndexesOfManyKinds(t *testing.T) {
	t.Parallel()
	l, err := Parse("test.yaml", []byte(`
key: {from: "k/{k}", to: "n/{r}/{k}", with: {r: {field: place.region}}}
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}"}
  - gather: {kind: notes, field: note, as: object, key: "{_key}"}
  - reference: {field: twin, kind: other}
`))
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		`{"key":{"x":1},"name":"x_1"}`:                                               "",
		`{"key":{"x":1,"_id":1},"name":"x_1__id_1"}`:                                 "",
		`{"key":{"_id.x":1},"name":"n"}`:                                             "the _id has another form",
		`{"key":{"twin":1},"name":"twin_1"}`:                                         "",
		`{"key":{"x":1},"name":"n","partialFilterExpression":{"_id":{"$gt":"k/b"}}}`: "the _id has another form",
		`{"key":{"x":1},"name":"n","partialFilterExpression":{"twin":"k/1"}}`:        "field twin has other values",
		`{"key":{"lines.sku":1},"name":"n"}`:                                         "field lines.sku is not there on the new side (fanOut lines)",
		`{"key":{"place.region":1},"name":"n"}`:                                      "field place.region is not there on the new side (key variable r in field place.region)",
		`{"key":{"place":1},"name":"n"}`:                                             "field place holds others",
		`{"key":{"note.x":1},"name":"n"}`:                                            "field note.x is one that the lens makes (gather note)",
	} {
		got, err := l.MapIndex(js(t, spec))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %q", spec, got, err, want)
		}
		if err == nil && text(got) != text(js(t, spec)) {
			t.Errorf("%s became %s", spec, got)
		}
	}
	for validator, want := range map[string]bool{
		`{"x":{"$type":"string"}}`:          false,
		`{"_id":{"$regex":"^k/"}}`:          true,
		`{"lines":{"$type":"array"}}`:       true,
		`{"note":{"$exists":false}}`:        true,
		`{"$expr":{"$eq":["$twin","k/1"]}}`: true,
	} {
		if _, got := l.TouchesValidator(js(t, validator)); got != want {
			t.Errorf("%s: %t", validator, got)
		}
	}
}
