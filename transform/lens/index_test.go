package lens_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

func TestMapIndex(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "rename: {from: section, to: category}", "move: {from: homepage, to: links.homepage}", "convert: {field: size, from: int, to: long}",
		"remove: {field: legacy}", "add: {field: schema, value: 2}", "rename: {from: o, to: p}", "convert: {field: at, from: epoch, to: date}",
		"each: {field: items, in: list, operations: [rename: {from: n, to: m}]}", "each: {field: by, in: map, operations: [rename: {from: n, to: m}]}", "each: {field: some, operations: [rename: {from: n, to: m}]}",
		"split: {field: addr, to: [host, port], separator: ':'}", "each: {field: tags, operations: [convert: {field: ., from: int, to: string}]}")
	for _, tc := range []struct{ name, spec, want, err string }{
		{"untouched", `{"v":2,"key":{"x":1,"y.z":-1},"name":"x_1_y.z_-1"}`, `{"v":2,"key":{"x":1,"y.z":-1},"name":"x_1_y.z_-1"}`, ""},
		{"renamed with its name", `{"v":2,"key":{"section":1,"x":-1},"name":"section_1_x_-1","unique":true}`, `{"v":2,"key":{"category":1,"x":-1},"name":"category_1_x_-1","unique":true}`, ""},
		{"chosen name", `{"key":{"homepage":"hashed"},"name":"mine"}`, `{"key":{"links.homepage":"hashed"},"name":"mine"}`, ""},
		{"below a renamed object", `{"key":{"o.a.b":1},"name":"o.a.b_1"}`, `{"key":{"p.a.b":1},"name":"p.a.b_1"}`, ""},
		{"converted, plain", `{"key":{"size":1},"name":"size_1"}`, `{"key":{"size":1},"name":"size_1"}`, ""},
		{"partial", `{"key":{"x":1},"name":"x_1","partialFilterExpression":{"$and":[{"section":{"$exists":true}},{"y":{"$gt":5}}]}}`, `{"key":{"x":1},"name":"x_1","partialFilterExpression":{"$and":[{"category":{"$exists":true}},{"y":{"$gt":5}}]}}`, ""},
		{"text", `{"key":{"_fts":"text","_ftsx":1},"name":"t","weights":{"section":3}}`, `{"key":{"_fts":"text","_ftsx":1},"name":"t","weights":{"category":3}}`, ""},
		{"wildcard", `{"key":{"$**":1},"name":"$**_1"}`, `{"key":{"$**":1},"name":"$**_1"}`, ""},
		{"wildcard below", `{"key":{"o.$**":1},"name":"w"}`, `{"key":{"p.$**":1},"name":"w"}`, ""},
		{"items of a list", `{"key":{"items.n":1},"name":"items.n_1"}`, `{"key":{"items.m":1},"name":"items.m_1"}`, ""},
		{"one item of a list", `{"key":{"items.0.n":1},"name":"x"}`, `{"key":{"items.0.m":1},"name":"x"}`, ""},
		{"entry of a map", `{"key":{"by.k.n":1},"name":"x"}`, `{"key":{"by.k.m":1},"name":"x"}`, ""},
		{"items that are values", `{"key":{"tags":1},"name":"x"}`, `{"key":{"tags":1},"name":"x"}`, ""},
		{"all of the items", `{"key":{"items":1},"name":"x"}`, "", "field items holds others"},
		{"list or map", `{"key":{"some.n":1},"name":"x"}`, "", "field some.n holds others"},
		{"split", `{"key":{"addr":1},"name":"x"}`, "", "field addr is made into others"},
		{"partial on converted", `{"key":{"x":1},"name":"x_1","partialFilterExpression":{"size":{"$gt":5}}}`, "", "field size has other values"},
		{"expiry on converted", `{"key":{"at":1},"name":"at_1","expireAfterSeconds":5}`, "", "field at has other values"},
		{"removed", `{"key":{"legacy":1},"name":"legacy_1"}`, "", "index legacy_1: field legacy is not there"},
		{"made", `{"key":{"schema":1},"name":"s"}`, "", "schema is one that the lens makes"},
		{"holds others", `{"key":{"links":1},"name":"s"}`, "", "field links holds others"},
		{"expression", `{"key":{"x":1},"name":"s","partialFilterExpression":{"$expr":{"$gt":["$x",1]}}}`, "", "$expr"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := l.MapIndex(lenstest.JSON(t, tc.spec))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s, error %v, want %q", lenstest.Text(got), err, tc.err)
				}
				return
			}
			if err != nil || lenstest.Text(got) != lenstest.Text(lenstest.JSON(t, tc.want)) {
				t.Errorf("%s, %v\nwant %s", lenstest.Text(got), err, tc.want)
			}
		})
	}
}

func TestTouchesValidator(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "rename: {from: section, to: category}", "convert: {field: o.size, from: int, to: long}", "each: {field: items, operations: [rename: {from: n.x, to: n.y}]}")
	for _, tc := range []struct {
		validator string
		want      bool
	}{
		{`{"name":{"$type":"string"}}`, false},
		{`{"section":{"$exists":true}}`, true},
		{`{"category":{"$exists":false}}`, true},
		{`{"items.n.q":{"$exists":true}}`, true},
		{`{"z.y":1}`, true},
		{`{"$or":[{"x":1},{"o.size":{"$lt":5}}]}`, true},
		{`{"$expr":{"$gt":["$o.size",1]}}`, true},
		{`{"$jsonSchema":{"required":["name","section"]}}`, true},
		{`{"$jsonSchema":{"properties":{"name":{"bsonType":"string"}}}}`, false},
		{`{"$jsonSchema":{"properties":{"name":{}},"additionalProperties":false}}`, true},
	} {
		if _, got := l.TouchesValidator(lenstest.JSON(t, tc.validator)); got != tc.want {
			t.Errorf("%s: %t", tc.validator, got)
		}
		if _, got := lenstest.Of(t).TouchesValidator(lenstest.JSON(t, tc.validator)); got {
			t.Errorf("%s: touched by a lens without operations", tc.validator)
		}
	}
}

// TestIndexesOfManyKinds: what would mean something else among other kinds and keys is
// refused by name.
func TestIndexesOfManyKinds(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("test.yaml", []byte(`
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
		got, err := l.MapIndex(lenstest.JSON(t, spec))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %q", spec, got, err, want)
		}
		if err == nil && lenstest.Text(got) != lenstest.Text(lenstest.JSON(t, spec)) {
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
		if _, got := l.TouchesValidator(lenstest.JSON(t, validator)); got != want {
			t.Errorf("%s: %t", validator, got)
		}
	}
}
