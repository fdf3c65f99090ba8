package operation_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

const fullName = `compute:
      from: [first, last]
      to: [full]
      up: {full: 'last == null ? first : first + " " + last'}
      down:
        first: full.split(" ")[0]
        last: 'size(full.split(" ")) == 2 ? full.split(" ")[1] : absent'`

func TestCompute(t *testing.T) {
	t.Parallel()
	const cents = `compute: {from: [price.amount], to: [cents], up: {cents: "int(math.round(price.amount * 100.0))"}, down: {price.amount: double(cents) / 100.0}}`
	for _, tc := range []struct {
		name     string
		ops      []string
		old, new string
	}{
		{"names", []string{fullName}, `{"_id":1,"first":"Ada","last":"Lovelace"}`, `{"_id":1,"full":"Ada Lovelace"}`},
		{"absent is null, and null absent", []string{fullName}, `{"_id":1,"first":"Plato"}`, `{"_id":1,"full":"Plato"}`},
		{"all absent", []string{fullName}, `{"_id":1}`, `{"_id":1}`},
		{"all null", []string{fullName}, `{"_id":1,"first":null,"last":null}`, `{"_id":1,"full":null}`},
		{"nested, double and int", []string{cents}, `{"_id":1,"price":{"amount":12.5}}`, `{"_id":1,"cents":1250}`},
		{"in place", []string{`compute: {from: [a], to: [a], up: {a: a * 2}, down: {a: a / 2}}`}, `{"_id":1,"a":5,"b":1}`, `{"_id":1,"a":10,"b":1}`},
		{"whole numbers beyond int", []string{`compute: {from: [a], to: [a], up: {a: a * 1000}, down: {a: long(a / 1000)}}`}, `{"_id":1,"a":{"$numberLong":"5000000"}}`, `{"_id":1,"a":{"$numberLong":"5000000000"}}`},
		{"dates", []string{`compute: {from: [at], to: [at], up: {at: at + duration("1h")}, down: {at: at - duration("1h")}}`}, `{"_id":1,"at":{"$date":{"$numberLong":"5"}}}`, `{"_id":1,"at":{"$date":{"$numberLong":"3600005"}}}`},
		{"decimals and objectIds", []string{`compute: {from: [d, o], to: [s], up: {s: string(d) + "/" + string(o)}, down: {d: 'decimal(s.split("/")[0])', o: 'objectId(s.split("/")[1])'}}`},
			`{"_id":1,"d":{"$numberDecimal":"1.10"},"o":{"$oid":"0123456789abcdef01234567"}}`, `{"_id":1,"s":"1.10/0123456789abcdef01234567"}`},
		{"what CEL has no type for is handed on", []string{`compute: {from: [r, d, o], to: [all], up: {all: "[r, d, {'x': o}]"}, down: {r: "all[0]", d: "all[1]", o: "all[2].x"}}`},
			`{"_id":1,"r":{"$regularExpression":{"pattern":"a","options":"i"}},"d":{"z":1,"a":{"$numberDecimal":"1.0"}},"o":[{"$numberLong":"5"},{"$timestamp":{"t":1,"i":2}}]}`,
			`{"_id":1,"all":[{"$regularExpression":{"pattern":"a","options":"i"}},{"z":1,"a":{"$numberDecimal":"1.0"}},{"x":[{"$numberLong":"5"},{"$timestamp":{"t":1,"i":2}}]}]}`},
		{"fields of an object made are in order", []string{`compute: {from: [a], to: [o], up: {o: "{'z': a, 'b': a, 'k': a, 'c': a}"}, down: {a: o.z}}`}, `{"_id":1,"a":1}`, `{"_id":1,"o":{"b":1,"c":1,"k":1,"z":1}}`},
		{"maps are gone through in order", []string{`compute: {from: [m], to: [m], up: {m: '{"k": m.map(k, k), "m": m}'}, down: {m: m.m}}`}, `{"_id":1,"m":{"z":1,"a":2,"k":3}}`, `{"_id":1,"m":{"k":["z","a","k"],"m":{"z":1,"a":2,"k":3}}}`},
		{"fields that are called like types and functions", []string{`compute: {from: [type, size, string, math.max, items.map, int], to: [all], up: {all: "[type, size, string, math.max, items.map, int, size(string)]"}, down: {type: "all[0]", size: "all[1]", string: "all[2]", math.max: "all[3]", items.map: "all[4]", int: "all[5]"}}`},
			`{"_id":1,"type":"a","size":2,"string":"b","math":{"max":3},"items":{"map":4},"int":"c"}`, `{"_id":1,"all":["a",2,"b",3,4,"c",1]}`},
		{"each item", []string{`each: {field: ids, operations: [compute: {from: [.], to: [.], up: {.: item + 1}, down: {.: item - 1}}]}`}, `{"_id":1,"ids":[1,2,null]}`, `{"_id":1,"ids":[2,3,null]}`},
		{"field of each item", []string{`each: {field: items, operations: [compute: {from: [o.n], to: [n], up: {n: o.n + 1}, down: {o.n: n - 1}}]}`}, `{"_id":1,"items":[{"o":{"n":1}},{}]}`, `{"_id":1,"items":[{"n":2},{}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.CheckBothWays(t, lenstest.Of(t, tc.ops...), lenstest.JSON(t, tc.old), lenstest.JSON(t, tc.new))
		})
	}
}

func TestComputeErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, op, src, field, reason string }{
		{"does not come back", `compute: {from: [a], to: [b], up: {b: a / 2}, down: {a: b * 2}}`, `{"a":5}`, "a", `is {"$numberInt":"5"} (int), would become {"$numberInt":"2"} (int), and the reverse would give {"$numberInt":"4"} (int)`},
		{"comes back as another type", `compute: {from: [a], to: [b], up: {b: a}, down: {a: b}}`, `{"a":{"$numberLong":"5"}}`, "a", `the reverse would give {"$numberInt":"5"} (int)`},
		{"null among others", fullName, `{"first":"x","last":null}`, "last", "the reverse would give absent"},
		{"type", `compute: {from: [a], to: [b], up: {b: a + "x"}, down: {a: b}}`, `{"a":5}`, "a", "no such overload"},
		{"reverse fails", `compute: {from: [a], to: [b], up: {b: a}, down: {a: "1 / (b - 5)"}}`, `{"a":5}`, "a", "division by zero"},
		{"cost", `compute: {from: [a], to: [b], up: {b: 'a.map(x, a.map(y, a.map(z, z)))'}, down: {a: b}}`, `{"a":[` + strings.Repeat("1,", 199) + `1]}`, "a", "cost"},
		{"type that BSON lacks", `compute: {from: [a], to: [b], up: {b: duration("1s")}, down: {a: b}}`, `{"a":1}`, "a", "which BSON does not have"},
		{"finer than a date", `compute: {from: [a], to: [b], up: {b: timestamp("2026-01-01T00:00:00.0001Z")}, down: {a: b}}`, `{"a":1}`, "a", "a date has milliseconds"},
		{"item left out", `each: {field: i, operations: [compute: {from: [.], to: [.], up: {.: "null"}, down: {.: item}}]}`, `{"i":[1]}`, "i.0", "would become absent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := lenstest.Of(t, tc.op).Up(lenstest.JSON(t, tc.src), nil)
			var bad *lens.RecordError
			if !errors.As(err, &bad) || bad.Field != tc.field || !strings.Contains(bad.Reason, tc.reason) {
				t.Errorf("%s, error %v", got, err)
			}
		})
	}
}

// TestComputeBoundsItsMemory: a record whose fields are long makes an expression fail, before it
// fills the memory.
func TestComputeBoundsItsMemory(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	src, err := bson.Marshal(bson.D{{Key: "a", Value: long}, {Key: "c", Value: long}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ up, reason string }{
		"replace":             {`a.substring(0, 4000).replace("", c)`, "replace would create a text of more than 16 MB"},
		"replace some":        {`a.replace("x", c, 4000)`, "replace would create a text of more than 16 MB"},
		"replace a few":       {`a.substring(0, 100).replace("x", "yy")`, ""},
		"join":                {`a.substring(0, 4000).split("").join(c)`, ""},
		"join of copies":      {`[1,2,3,4,5,6,7,8,9,10].map(x, c).map(x, [x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x].join()).join()`, "cost"},
		"join of shared":      {`["", dyn([[""]].map(x, [x,x,x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x,x,x]))].map(z, dyn(z)).join("")`, "join would create a text of more than 16 MB"},
		"join of a long item": {`["", dyn([a])].map(z, dyn(z)).join("")`, "invalid input"},
		"join a few":          {`[a.substring(0, 100), "x"].join("-")`, ""},
		"format of too many":  {`"%s".format([a.split("").map(x, c)])`, "cost"},
		"format of copies":    {`"%s".format([a.substring(0, 5000).split("").map(x, c)])`, "format would create a text of more than 16 MB"},
		"format a few":        {`string(size("%s %s".format([a, c])))`, ""},
		"a list of copies":    {`a.substring(0, 5000).split("").map(x, c)`, "the result has more than 16 MB"},
		"an object of copies": {`[1,2,3,4,5,6,7,8,9,10].map(x, c).map(x, {"a": [x,x,x,x,x,x,x,x,x,x], "b": [x,x,x,x,x,x,x,x,x,x]})`, "the result has more than 16 MB"},
		"many results":        {`[1,2,3,4,5,6,7,8,9].map(x, a.replace("x", c, 50)).map(x, size(x))`, "cost"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lenstest.Of(t, fmt.Sprintf("compute: {from: [a, c], to: [b, d], up: {b: '%s', d: c}, down: {a: b, c: d}}", tc.up))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := l.Up(src, nil)
			runtime.ReadMemStats(&after)
			// No expression here gives a back, so each is refused in the end. CEL reports the cost of
			// a join that was refused, so only its memory shows the difference.
			if err == nil || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("error %.300v, want %q", err, tc.reason)
			}
			if strings.HasSuffix(name, "a few") && !strings.Contains(err.Error(), "the reverse would give") {
				t.Errorf("error %.300v, but the result is small", err)
			}
			if err != nil && len(err.Error()) > 8<<10 && !strings.HasSuffix(name, "a few") {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 300 {
				t.Errorf("%d MB were allocated", grown)
			}
		})
	}
}

// TestComputeIsTheSameEveryTime: expressions that go through maps, which Go shuffles.
func TestComputeIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, `compute: {from: [a], to: [b], up: {b: "{'q': 1, 'w': 2, 'e': 3, 'r': a}.map(k, k)"}, down: {a: "size(b)"}}`)
	var first bson.Raw
	for range 50 {
		got, err := l.Up(lenstest.JSON(t, `{"a":4}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if !bytes.Equal(first, got) {
			t.Fatalf("%s and %s", lenstest.Text(first), lenstest.Text(got))
		}
	}
}

func TestHook(t *testing.T) {
	t.Parallel()
	swap := func(in []bson.RawValue) ([]bson.RawValue, error) {
		if in[0].Type == bson.TypeBoolean {
			return nil, errors.New("no bools")
		}
		return []bson.RawValue{in[1], in[0]}, nil
	}
	hooks := lens.Hooks{
		"swap":      {Up: swap, Down: swap, Revision: "1"},
		"malformed": {Up: func([]bson.RawValue) ([]bson.RawValue, error) { return []bson.RawValue{{Type: bson.TypeInt32}}, nil }, Down: swap},
		"lossy":     {Up: func([]bson.RawValue) ([]bson.RawValue, error) { return []bson.RawValue{scalar.StringValue("x")}, nil }, Down: func([]bson.RawValue) ([]bson.RawValue, error) { return []bson.RawValue{scalar.StringValue("y")}, nil }},
		"half":      {Up: swap},
	}
	read := func(text string) (*lens.Lens, error) {
		return lens.Parse("hook.yaml", []byte("operations:\n  - "+text), lens.WithHooks(hooks))
	}
	l, err := read("hook: {name: swap, from: [a, b], to: [c, o.d]}")
	if err != nil {
		t.Fatal(err)
	}
	lenstest.CheckBothWays(t, l, lenstest.JSON(t, `{"_id":1,"a":1,"b":"x"}`), lenstest.JSON(t, `{"_id":1,"c":"x","o":{"d":1}}`))
	lenstest.CheckBothWays(t, l, lenstest.JSON(t, `{"_id":1,"b":"x"}`), lenstest.JSON(t, `{"_id":1,"c":"x"}`))
	if _, err := l.Up(lenstest.JSON(t, `{"a":true,"b":1}`), nil); err == nil || !strings.Contains(err.Error(), "hook swap: a, b cannot be calculated: no bools") {
		t.Errorf("error of the hook: %v", err)
	}
	for text, want := range map[string]string{
		"hook: {name: malformed, from: [a], to: [b]}": "not well-formed",
		"hook: {name: lossy, from: [a], to: [b]}":     "the reverse would give \"y\"",
		"hook: {name: swap, from: [a, x], to: [b]}":   "it gave 2 values, not 1",
	} {
		l, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.Up(lenstest.JSON(t, `{"a":1}`), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, error %v", text, got, err)
		}
	}
	if _, err := read("hook: {name: half, from: [a], to: [b]}"); err == nil || !strings.Contains(err.Error(), "hook.yaml:2:18: hook \"half\" has not both") {
		t.Errorf("half: %v", err)
	}
	if _, err := read("hook: {name: swop, from: [a], to: [b]}"); err == nil || !strings.Contains(err.Error(), `hook.yaml:2:18: unknown hook "swop"; this program has: half, lossy, malformed, swap`) {
		t.Errorf("unknown: %v", err)
	}
	newer := lens.Hooks{"swap": {Up: swap, Down: swap, Revision: "2"}}
	m, err := lens.Parse("hook.yaml", []byte("operations:\n  - hook: {name: swap, from: [a, b], to: [c, o.d]}"), lens.WithHooks(newer))
	if err != nil || m.Spec("k", "k").Revision == l.Spec("k", "k").Revision {
		t.Errorf("the revision of a lens must follow that of its hooks (%v)", err)
	}
}

func TestComputeKeepsEveryDouble(t *testing.T) {
	t.Parallel()
	l := lenstest.Of(t, `compute: {from: [a, b], to: [l], up: {l: "[a, b]"}, down: {a: "l[0]", b: "l[1]"}}`)
	for _, bits := range []uint64{0, 1 << 63, math.Float64bits(math.Inf(-1)), 0x7ff8000000000001, 0x7ff0000000000001} {
		d, err := bson.Marshal(bson.D{{Key: "a", Value: math.Float64frombits(bits)}, {Key: "b", Value: 1}})
		if err != nil {
			t.Fatal(err)
		}
		up, err := l.Up(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		if down, err := l.Down(up, nil); err != nil || !bytes.Equal(down, d) {
			t.Error(fmt.Sprintf("%x", bits), down, err)
		}
	}
}
