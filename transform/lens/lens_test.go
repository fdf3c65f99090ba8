package lens_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

func TestOperations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		ops      []string
		old, new string
	}{
		{"identity", nil, `{"_id":1,"a":2}`, `{"_id":1,"a":2}`},
		{"rename keeps the place", []string{"rename: {from: a, to: b}"}, `{"_id":1,"a":2,"c":3}`, `{"_id":1,"b":2,"c":3}`},
		{"rename of an absent field", []string{"rename: {from: a, to: b}"}, `{"_id":1,"c":3}`, `{"_id":1,"c":3}`},
		{"rename within an object", []string{"rename: {from: o.a, to: o.b}"}, `{"_id":1,"o":{"x":1,"a":2,"y":{"z":1}}}`, `{"_id":1,"o":{"x":1,"b":2,"y":{"z":1}}}`},
		{"rename of an object", []string{"rename: {from: o, to: p}"}, `{"_id":1,"o":{"x":[1,2]}}`, `{"_id":1,"p":{"x":[1,2]}}`},
		{"swap", []string{"rename: {from: a, to: t}", "rename: {from: b, to: a}", "rename: {from: t, to: b}"}, `{"_id":1,"a":2,"b":3}`, `{"_id":1,"b":2,"a":3}`},
		{"move makes an object", []string{"move: {from: a, to: o.a}"}, `{"_id":1,"x":0,"a":2}`, `{"_id":1,"x":0,"o":{"a":2}}`},
		{"move into an object", []string{"move: {from: a, to: o.a}"}, `{"_id":1,"o":{"z":1},"a":2}`, `{"_id":1,"o":{"z":1,"a":2}}`},
		{"move deep", []string{"move: {from: a, to: o.p.q.a}"}, `{"_id":1,"o":{"z":1},"a":2}`, `{"_id":1,"o":{"z":1,"p":{"q":{"a":2}}}}`},
		{"move two out", []string{"move: {from: o.a, to: a}", "move: {from: o.b, to: b}"}, `{"_id":1,"o":{"a":2,"b":3}}`, `{"_id":1,"a":2,"b":3}`},
		{"move between objects", []string{"move: {from: o.a, to: p.b}"}, `{"_id":1,"o":{"a":{"k":[1]}}}`, `{"_id":1,"p":{"b":{"k":[1]}}}`},
		{"move then rename around it", []string{"move: {from: a, to: o.a}", "rename: {from: o, to: p}", "convert: {field: p.a, from: int, to: string}"}, `{"_id":1,"a":2}`, `{"_id":1,"p":{"a":"2"}}`},
		{"convert", []string{"convert: {field: a, from: int, to: long}"}, `{"_id":1,"a":2}`, `{"_id":1,"a":{"$numberLong":"2"}}`},
		{"convert leaves null", []string{"convert: {field: a, from: int, to: long}"}, `{"_id":1,"a":null}`, `{"_id":1,"a":null}`},
		{"convert twice", []string{"convert: {field: a, from: string, to: long}", "convert: {field: a, from: epoch, to: date}"}, `{"_id":1,"a":"1700000000"}`, `{"_id":1,"a":{"$date":{"$numberLong":"1700000000000"}}}`},
		{"table", []string{"convert: {field: a, table: {low: 1, high: 2}}"}, `{"_id":1,"a":"high"}`, `{"_id":1,"a":2}`},
		{"table of types", []string{"convert: {field: a, table: {1: one, \"2\": text, true: yes}}"}, `{"_id":1,"a":1}`, `{"_id":1,"a":"one"}`},
		{"add constant", []string{"add: {field: schema, value: 2}"}, `{"_id":1}`, `{"_id":1,"schema":2}`},
		{"add constant object", []string{"add: {field: m, value: {a: [1, x], n: {$numberLong: \"7\"}}}"}, `{"_id":1}`, `{"_id":1,"m":{"a":[1,"x"],"n":{"$numberLong":"7"}}}`},
		{"add default", []string{"add: {field: s, default: new}"}, `{"_id":1}`, `{"_id":1,"s":"new"}`},
		{"add only into objects that are there", []string{"add: {field: o.s, default: new}"}, `{"_id":1}`, `{"_id":1}`},
		{"add into an object", []string{"add: {field: o.s, default: new}"}, `{"_id":1,"o":{}}`, `{"_id":1,"o":{"s":"new"}}`},
		{"_id in the middle", []string{"rename: {from: a, to: b}"}, `{"a":2,"_id":{"x":1},"c":3}`, `{"b":2,"_id":{"x":1},"c":3}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.CheckBothWays(t, lenstest.Of(t, tc.ops...), lenstest.JSON(t, tc.old), lenstest.JSON(t, tc.new))
		})
	}
}

func TestComplement(t *testing.T) {
	t.Parallel()
	const (
		added   = "add: {field: state, default: new}"
		removed = "remove: {field: legacy, default: none}"
		bare    = "remove: {field: legacy}"
		nested  = "add: {field: o.s, default: 0}"
	)
	for _, tc := range []lenstest.HeldCase{
		{Name: "default where nothing is held", Ops: []string{added}, Down: false, Src: `{"_id":1}`, Have: ``, Want: `{"_id":1,"state":"new"}`},
		{Name: "what is held", Ops: []string{added}, Down: false, Src: `{"_id":1,"a":1,"b":2}`, Have: `{"_id":1,"a":0,"state":7,"b":0}`, Want: `{"_id":1,"a":1,"state":7,"b":2}`},
		{Name: "what was taken out stays out", Ops: []string{added}, Down: false, Src: `{"_id":1}`, Have: `{"_id":1}`, Want: `{"_id":1}`},
		{Name: "held under a later name", Ops: []string{nested, "rename: {from: o, to: p}"}, Down: false, Src: `{"_id":1,"o":{"x":1}}`, Have: `{"_id":1,"p":{"s":9,"x":0}}`, Want: `{"_id":1,"p":{"s":9,"x":1}}`},
		{Name: "held in a moved object", Ops: []string{nested, "move: {from: o, to: p.o}"}, Down: false, Src: `{"_id":1,"o":{"x":1},"p":{"y":1}}`, Have: `{"_id":1,"p":{"o":{"s":9,"x":2},"y":0}}`, Want: `{"_id":1,"p":{"o":{"s":9,"x":1},"y":1}}`},
		{Name: "object gone", Ops: []string{nested}, Down: false, Src: `{"_id":1}`, Have: `{"_id":1,"o":{"s":9}}`, Want: `{"_id":1}`},
		{Name: "constant wins", Ops: []string{"add: {field: schema, value: 2}"}, Down: false, Src: `{"_id":1}`, Have: `{"schema":1,"_id":1}`, Want: `{"schema":2,"_id":1}`},
		{Name: "removed comes back", Ops: []string{removed}, Down: true, Src: `{"_id":1,"a":2}`, Have: `{"_id":1,"legacy":[1],"a":1}`, Want: `{"_id":1,"legacy":[1],"a":2}`},
		{Name: "removed by default", Ops: []string{removed}, Down: true, Src: `{"_id":1,"a":2}`, Have: ``, Want: `{"_id":1,"a":2,"legacy":"none"}`},
		{Name: "removed without default", Ops: []string{bare}, Down: true, Src: `{"_id":1,"a":2}`, Have: ``, Want: `{"_id":1,"a":2}`},
		{Name: "moved fields go back to their place", Ops: []string{"move: {from: a, to: o.a}"}, Down: true, Src: `{"_id":1,"z":1,"o":{"a":2}}`, Have: `{"_id":1,"a":1,"z":1}`, Want: `{"_id":1,"a":2,"z":1}`},
	} {
		t.Run(tc.Name, tc.Check)
	}
	if s := lenstest.Of(t, added).Spec("a", "b"); !s.UpNeedsHave || s.DownNeedsHave {
		t.Error("add-default needs the complement on the way up alone")
	}
	if s := lenstest.Of(t, bare, "add: {field: schema, value: 2}").Spec("a", "b"); s.UpNeedsHave || !s.DownNeedsHave {
		t.Error("remove needs the complement on the way down alone, a constant never")
	}
}

func TestRecordsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		op   string
		down bool
		src  string
		want []string
	}{
		{"type", "convert: {field: a, from: int, to: long}", false, `{"a":"x"}`, []string{"convert a from int to long", "a is of type string"}},
		{"range", "convert: {field: a, from: int, to: long}", true, `{"a":{"$numberLong":"5000000000"}}`, []string{"convert a from long to int", "5000000000", "long"}},
		{"inexact", "convert: {field: a, from: double, to: int}", false, `{"a":1.5}`, []string{"convert a from double to int", "double"}},
		{"text", "convert: {field: a, from: string, to: int}", false, `{"a":"007"}`, []string{`"007"`, "string"}},
		{"table", "convert: {field: a, table: {x: y}}", false, `{"a":"z"}`, []string{"convert a by table", `"z"`, `it has "x"`}},
		{"table down", "convert: {field: a, table: {x: y}}", true, `{"a":"x"}`, []string{`it has "y"`}},
		{"rename onto a field", "rename: {from: a, to: b}", false, `{"b":1}`, []string{"rename a to b", "b is there already (int)"}},
		{"rename onto a field, down", "rename: {from: a, to: b}", true, `{"a":1,"b":2}`, []string{"rename b to a", "a is there already"}},
		{"move onto a field", "move: {from: a, to: o.a}", false, `{"o":{"a":1}}`, []string{"o.a is there already"}},
		{"move into a value", "move: {from: a, to: o.a}", false, `{"a":1,"o":"text"}`, []string{"o is a value of type string"}},
		{"move into an empty object", "move: {from: a, to: o.a}", false, `{"a":1,"o":{}}`, []string{"o is an empty object"}},
		{"path through an array", "move: {from: a, to: o.a}", false, `{"a":1,"o":[]}`, []string{"o is an array"}},
		{"add onto a field", "add: {field: s, default: 1}", false, `{"s":1}`, []string{"add s", "s is there already (int)"}},
		{"remove, down onto a field", "remove: {field: s}", true, `{"s":1}`, []string{"remove s", "s is there already (int)"}},
		{"other constant", "add: {field: s, value: 2}", true, `{"s":3}`, []string{"s is", "constant", "int"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Of(t, tc.op)
			run := l.Up
			if tc.down {
				run = l.Down
			}
			got, err := run(lenstest.JSON(t, tc.src), nil)
			if err == nil {
				t.Fatalf("accepted: %s", lenstest.Text(got))
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

func TestTwiceTheSameFieldIsRefused(t *testing.T) {
	t.Parallel()
	d, err := bson.Marshal(bson.D{{Key: "a", Value: 1}, {Key: "a", Value: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lenstest.Of(t, "rename: {from: a, to: b}").Up(d, nil); err == nil || !strings.Contains(err.Error(), "a is there twice") {
		t.Errorf("error is %v", err)
	}
	if _, err := lenstest.Of(t, "rename: {from: c, to: b}").Up(d, nil); err != nil {
		t.Errorf("a field that no operation names: %v", err)
	}
}

func TestUntouchedBytesAreKept(t *testing.T) {
	t.Parallel()
	// Values that a decoder would change: a NaN with a payload, a decimal with trailing
	// zeros, a deprecated type, fields in no order.
	d, err := bson.Marshal(bson.D{{Key: "z", Value: bson.Symbol("s")}, {Key: "_id", Value: int64(5)}, {Key: "a", Value: 1}, {Key: "b", Value: bson.RawValue{Type: bson.TypeDouble, Value: []byte{1, 2, 3, 4, 5, 6, 0xf8, 0x7f}}}})
	if err != nil {
		t.Fatal(err)
	}
	l := lenstest.Of(t, "convert: {field: a, from: int, to: string}")
	up, err := l.Up(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	down, err := l.Down(up, nil)
	if err != nil || !bytes.Equal(down, d) {
		t.Errorf("%x\nbecame %x (%v)", []byte(d), []byte(down), err)
	}
	same, err := l.Up(lenstest.JSON(t, `{"_id":1}`), nil)
	if err != nil || lenstest.Text(same) != `{"_id":{"$numberInt":"1"}}` {
		t.Errorf("%s %v", lenstest.Text(same), err)
	}
}

func TestMalformedDocuments(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "rename: {from: a, to: b}")
	good := lenstest.JSON(t, `{"_id":1,"a":"text","o":{"x":1}}`)
	for n := range good {
		if _, err := l.Up(good[:n], nil); err == nil {
			t.Errorf("the first %d bytes were accepted", n)
		}
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, "remove: {field: o.legacy}", "rename: {from: o, to: p}", "add: {field: state, default: new}", "copy: {from: a, to: b}", "add: {field: schema, value: 2}",
		"each: {field: items, match: id, operations: [remove: {field: x}, add: {field: y, default: 1}]}", "rename: {from: items, to: parts}")
	up, down := l.Lost()
	if want := []lens.Loss{{Field: "items.*.x", Operation: "each items: remove x"}, {Field: "o.legacy", Operation: "remove o.legacy"}}; !reflect.DeepEqual(up, want) {
		t.Errorf("up %v", up)
	}
	if want := []lens.Loss{{Field: "state", Operation: "add state"}, {Field: "b", Operation: "copy a to b"}, {Field: "parts.*.y", Operation: "each items: add y"}}; !reflect.DeepEqual(down, want) {
		t.Errorf("down %v", down)
	}
	if up, down := lenstest.Of(t, "rename: {from: a, to: b}", "add: {field: c, value: 1}").Lost(); len(up)+len(down) > 0 {
		t.Errorf("%v, %v", up, down)
	}
}
