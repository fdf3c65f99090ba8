package operation_test

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

func TestOperationsOnListsAndStrings(t *testing.T) {
	t.Parallel()
	const split = "split: {field: name, to: [first, last], separator: ' '}"
	for _, tc := range []struct {
		name     string
		ops      []string
		old, new string
	}{
		{"wrap", []string{"wrap: {field: a}"}, `{"_id":1,"a":"x","b":2}`, `{"_id":1,"a":["x"],"b":2}`},
		{"wrap a list", []string{"wrap: {field: a}"}, `{"_id":1,"a":[]}`, `{"_id":1,"a":[[]]}`},
		{"wrap leaves null", []string{"wrap: {field: a}"}, `{"_id":1,"a":null}`, `{"_id":1,"a":null}`},
		{"unwrap", []string{"unwrap: {field: o.a}"}, `{"_id":1,"o":{"a":[{"x":1}]}}`, `{"_id":1,"o":{"a":{"x":1}}}`},
		{"split", []string{split}, `{"_id":1,"name":"Ada Lovelace"}`, `{"_id":1,"first":"Ada","last":"Lovelace"}`},
		{"split with empty parts", []string{split}, `{"_id":1,"name":" "}`, `{"_id":1,"first":"","last":""}`},
		{"split of an absent field", []string{split}, `{"_id":1}`, `{"_id":1}`},
		{"split of null", []string{split}, `{"_id":1,"name":null}`, `{"_id":1,"first":null,"last":null}`},
		{"split into objects", []string{"split: {field: o.at, to: [o.host, port.number], separator: \":\"}"}, `{"_id":1,"o":{"at":"h:80"}}`, `{"_id":1,"o":{"host":"h"},"port":{"number":"80"}}`},
		{"split with a rest", []string{"split: {field: at, to: [at, path], separator: /, rest: true}"}, `{"_id":1,"at":"a/b/c","x":1}`, `{"_id":1,"at":"a","x":1,"path":"b/c"}`},
		{"split, then convert", []string{"split: {field: v, to: [major, minor], separator: .}", "convert: {field: major, from: string, to: int}"}, `{"_id":1,"v":"1.20"}`, `{"_id":1,"major":1,"minor":"20"}`},
		{"join", []string{"join: {fields: [a, b, c], to: d, separator: '::'}"}, `{"_id":1,"a":"x","b":"","c":"z:"}`, `{"_id":1,"d":"x::::z:"}`},
		{"copy", []string{"copy: {from: a, to: o.b}"}, `{"_id":1,"a":[1],"o":{"x":1}}`, `{"_id":1,"a":[1],"o":{"x":1,"b":[1]}}`},
		{"copy of an absent field", []string{"copy: {from: a, to: b}"}, `{"_id":1}`, `{"_id":1}`},
		{"each of a list", []string{"each: {field: items, operations: [rename: {from: n, to: count}, convert: {field: count, from: int, to: string}]}"},
			`{"_id":1,"items":[{"n":1,"x":0},{"n":2},{},null,"text"]}`, `{"_id":1,"items":[{"count":"1","x":0},{"count":"2"},{},null,"text"]}`},
		{"each of a map", []string{"each: {field: by, in: map, operations: [move: {from: a, to: o.a}]}"}, `{"_id":1,"by":{"x":{"a":1},"y":{"z":2}}}`, `{"_id":1,"by":{"x":{"o":{"a":1}},"y":{"z":2}}}`},
		{"each item itself", []string{"each: {field: ids, operations: [convert: {field: ., from: int, to: long}]}"}, `{"_id":1,"ids":[1,null,2]}`, `{"_id":1,"ids":[{"$numberLong":"1"},null,{"$numberLong":"2"}]}`},
		{"each item by table", []string{"each: {field: ids, in: list, operations: [convert: {field: ., table: {a: b}}, wrap: {field: .}]}"}, `{"_id":1,"ids":["a","a"]}`, `{"_id":1,"ids":[["b"],["b"]]}`},
		{"each within each", []string{"each: {field: rows, operations: [each: {field: ., operations: [convert: {field: ., from: int, to: string}]}]}"}, `{"_id":1,"rows":[[1],[2,3],[]]}`, `{"_id":1,"rows":[["1"],["2","3"],[]]}`},
		{"each moves all that an item has", []string{"each: {field: items, operations: [move: {from: o.a, to: a}, move: {from: b, to: p.b}]}"}, `{"_id":1,"items":[{"o":{"a":1}},{"b":2}]}`, `{"_id":1,"items":[{"a":1},{"p":{"b":2}}]}`},
		{"each of what was wrapped", []string{"wrap: {field: o}", "each: {field: o, operations: [rename: {from: a, to: b}]}"}, `{"_id":1,"o":{"a":1}}`, `{"_id":1,"o":[{"b":1}]}`},
		{"each with a constant", []string{"each: {field: items, operations: [add: {field: v, value: 2}]}"}, `{"_id":1,"items":[{"a":1},{}]}`, `{"_id":1,"items":[{"a":1,"v":2},{"v":2}]}`},
		{"each absent or null", []string{"each: {field: a, operations: [wrap: {field: .}]}", "each: {field: b, operations: [wrap: {field: .}]}"}, `{"_id":1,"a":null}`, `{"_id":1,"a":null}`},
		{"each has an _id of its own", []string{"each: {field: a, operations: [rename: {from: _id, to: id}]}"}, `{"_id":1,"a":[{"_id":5}]}`, `{"_id":1,"a":[{"id":5}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.CheckBothWays(t, lenstest.Of(t, tc.ops...), lenstest.JSON(t, tc.old), lenstest.JSON(t, tc.new))
		})
	}
}

func TestComplementOfItems(t *testing.T) {
	t.Parallel()
	const (
		added   = "each: {field: items, match: id, operations: [add: {field: s, default: new}]}"
		removed = "each: {field: items, match: id, operations: [remove: {field: old, default: none}]}"
		inMap   = "each: {field: by, in: map, operations: [add: {field: s, default: new}]}"
		deep    = "each: {field: rows, match: k, operations: [rename: {from: k, to: key}, each: {field: items, match: id, operations: [convert: {field: id, from: int, to: string}, add: {field: o.s, default: 1}]}]}"
	)
	for _, tc := range []lenstest.HeldCase{
		{Name: "by id, whatever the order", Ops: []string{added}, Down: false, Src: `{"items":[{"id":1},{"id":2},{"id":3}]}`, Have: `{"items":[{"id":2,"s":"two"},{"id":1}]}`,
			Want: `{"items":[{"id":1},{"id":2,"s":"two"},{"id":3,"s":"new"}]}`},
		{Name: "a number of another type is the same id", Ops: []string{added}, Down: false, Src: `{"items":[{"id":1}]}`, Have: `{"items":[{"id":{"$numberLong":"1"},"s":"long"}]}`, Want: `{"items":[{"id":1,"s":"long"}]}`},
		{Name: "removed from items", Ops: []string{removed}, Down: true, Src: `{"items":[{"id":2},{"id":1},{"id":5}]}`, Have: `{"items":[{"old":1,"id":1},{"id":2}]}`, Want: `{"items":[{"id":2},{"old":1,"id":1},{"id":5,"old":"none"}]}`},
		{Name: "entries of a map by name", Ops: []string{inMap}, Down: false, Src: `{"by":{"x":{},"y":{},"z":{}}}`, Have: `{"by":{"y":{"s":1},"x":{}}}`, Want: `{"by":{"x":{},"y":{"s":1},"z":{"s":"new"}}}`},
		{Name: "held under a later name", Ops: []string{added, "rename: {from: items, to: parts}", "each: {field: parts, operations: [rename: {from: id, to: key}, rename: {from: s, to: t}]}"}, Down: false,
			Src: `{"items":[{"id":1}]}`, Have: `{"parts":[{"key":1,"t":7}]}`, Want: `{"parts":[{"key":1,"t":7}]}`},
		{Name: "lists in lists", Ops: []string{deep}, Down: false, Src: `{"rows":[{"k":"b","items":[{"id":1,"o":{"x":1}}]},{"k":"a","items":[{"id":1,"o":{"x":2}}]}]}`,
			Have: `{"rows":[{"key":"a","items":[{"id":"1","o":{"s":"a1"}}]},{"key":"b","items":[{"id":"1","o":{"s":"b1"}}]}]}`,
			Want: `{"rows":[{"key":"b","items":[{"id":"1","o":{"s":"b1","x":1}}]},{"key":"a","items":[{"id":"1","o":{"s":"a1","x":2}}]}]}`},
		{Name: "within a list of one", Ops: []string{"wrap: {field: o}", "each: {field: o, match: id, operations: [remove: {field: x}, add: {field: y, default: 1}]}"}, Down: true, Src: `{"o":[{"id":1,"y":2}]}`, Have: `{"o":{"x":5,"id":1}}`, Want: `{"o":{"x":5,"id":1}}`},
		{Name: "lists in a list of one", Ops: []string{"each: {field: l, match: id, operations: [add: {field: y, default: 1}]}", "wrap: {field: l}"}, Down: false, Src: `{"l":[{"id":2},{"id":1}]}`, Have: `{"l":[[{"id":1,"y":"one"}]]}`, Want: `{"l":[[{"id":2,"y":1},{"id":1,"y":"one"}]]}`},
		{Name: "target has something else", Ops: []string{added}, Down: false, Src: `{"items":[{"id":1}]}`, Have: `{"items":"text"}`, Want: `{"items":[{"id":1,"s":"new"}]}`},
		{Name: "copy is owned by the new side", Ops: []string{"copy: {from: a, to: b}"}, Down: false, Src: `{"a":2}`, Have: `{"a":1,"b":1}`, Want: `{"a":2,"b":1}`},
		{Name: "copy that was taken out stays out", Ops: []string{"copy: {from: a, to: b}"}, Down: false, Src: `{"a":2}`, Have: `{"a":1}`, Want: `{"a":2}`},
	} {
		t.Run(tc.Name, tc.Check)
	}
}

func TestErrorOfTheComplement(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "each: {field: items, match: id, operations: [add: {field: s, default: new}]}")
	_, err := l.Up(lenstest.JSON(t, `{"items":[{"id":1}]}`), lenstest.JSON(t, `{"items":[{"id":1},{"id":1}]}`))
	var bad *lens.RecordError
	if !errors.As(err, &bad) || bad.Operation != "complement" || bad.Field != "items" {
		t.Errorf("error is %v", err)
	}
}

func TestRecordErrors(t *testing.T) {
	t.Parallel()
	const added = "each: {field: items, match: id, operations: [add: {field: s, default: new}]}"
	for _, tc := range []struct {
		name                     string
		op                       string
		down                     bool
		src                      string
		operation, field, reason string
	}{
		{"convert", "convert: {field: o.a, from: int, to: long}", false, `{"o":{"a":"x"}}`, "convert o.a from int to long", "o.a", "is of type string, not int"},
		{"unwrap of two", "wrap: {field: a}", true, `{"a":[1,2]}`, "wrap a", "a", "is a list of 2 items"},
		{"unwrap of none", "unwrap: {field: a}", false, `{"a":[]}`, "unwrap a", "a", "is a list of 0 items"},
		{"unwrap of a null", "unwrap: {field: a}", false, `{"a":[null]}`, "unwrap a", "a", "come back as a null"},
		{"unwrap of a value", "unwrap: {field: a}", false, `{"a":1}`, "unwrap a", "a", "is of type int, not a list"},
		{"split of too few", "split: {field: a, to: [b, c], separator: ' '}", false, `{"a":"Plato"}`, "split a into b, c", "a", `is "Plato", which has 1 parts`},
		{"split of too many", "split: {field: a, to: [b, c], separator: ' '}", false, `{"a":"a b c"}`, "split a into b, c", "a", "has 3 parts"},
		{"split of a number", "split: {field: a, to: [b, c], separator: ' '}", false, `{"a":5}`, "split a into b, c", "a", "is of type int, not string"},
		{"split onto a field", "split: {field: a, to: [b, c], separator: ' '}", false, `{"a":"x y","c":1}`, "split a into b, c", "c", "is there already (int)"},
		{"join of one part", "split: {field: a, to: [b, c], separator: ' '}", true, `{"b":"x"}`, "split a into b, c", "c", "is absent, but other parts"},
		{"join of a separator", "join: {fields: [b, c], to: a, separator: ' '}", false, `{"b":"x y","c":"z"}`, "join b, c to a", "b", "holds the separator"},
		{"join that splits elsewhere", "join: {fields: [b, c], to: a, separator: aa}", false, `{"b":"xa","c":"y"}`, "join b, c to a", "b", "cannot be converted"},
		{"item", "each: {field: items, operations: [convert: {field: o.n, from: int, to: long}]}", false, `{"items":[{},{"o":{"n":"x"}}]}`,
			"each items: convert o.n from int to long", "items.1.o.n", "is of type string"},
		{"item itself", "each: {field: ids, operations: [convert: {field: ., from: int, to: long}]}", false, `{"ids":["x"]}`, "each ids: convert . from int to long", "ids.0", "is of type string"},
		{"item of an item", "each: {field: a, operations: [each: {field: b, operations: [unwrap: {field: c}]}]}", false, `{"a":[{"b":{"k":{"c":1}}}]}`, "each a: each b: unwrap c", "a.0.b.k.c", "not a list"},
		{"not a list", "each: {field: a, in: list, operations: []}", false, `{"a":{}}`, "each a", "a", "is of type object, not a list"},
		{"not a map", "each: {field: a, in: map, operations: []}", false, `{"a":[]}`, "each a", "a", "is a list, not a map"},
		{"neither", "each: {field: a, operations: []}", false, `{"a":1}`, "each a", "a", "neither a list nor a map"},
		{"items with one id", added, false, `{"items":[{"id":1},{"id":1}]}`, "each items", "items", "items 0 and 1 have the same id"},
		{"item without an id", added, true, `{"items":[{"x":1}]}`, "each items", "items", "item 0 has no id"},
		{"path into a list", "rename: {from: o.a, to: o.b}", false, `{"o":[]}`, "rename o.a to o.b", "o", "is an array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Of(t, tc.op)
			run := l.Up
			if tc.down {
				run = l.Down
			}
			got, err := run(lenstest.JSON(t, tc.src), nil)
			var bad *lens.RecordError
			if !errors.As(err, &bad) {
				t.Fatalf("%s, error %v", lenstest.Text(got), err)
			}
			if bad.Operation != tc.operation || bad.Field != tc.field || !strings.Contains(bad.Reason, tc.reason) {
				t.Errorf("%q, %q, %q", bad.Operation, bad.Field, bad.Reason)
			}
		})
	}
}
