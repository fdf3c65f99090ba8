package lens_test

import (
	"bytes"
	"math"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// FuzzParse: no text makes the parser panic, and what it accepts runs both ways.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../../examples/packages/packages.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("operations: []"))
	f.Add([]byte("lens: 1\noperations:\n- add: {field: a, value: {$date: {$numberLong: '5'}}}\n- remove: {field: b, default: [1, .inf, ~, 1.5, yes]}"))
	f.Add([]byte("operations: [{convert: {field: a.b, from: string, to: int}}, {convert: {field: c, table: {1: a, true: b}}}]"))
	f.Add([]byte("operations:\n- wrap: {field: l}\n- each: {field: l, in: list, match: id, operations: [add: {field: a, default: 1}, convert: {field: b, from: int, to: long}]}"))
	f.Add([]byte("operations: [{split: {field: s, to: [x, y.z], separator: ':', rest: true}}, {join: {fields: [x, c], to: j, separator: -}}, {copy: {from: a, to: k}}, {unwrap: {field: u}}]"))
	f.Add([]byte("operations:\n- compute: {from: [c, a.b], to: [r], up: {r: '[c, a.b]'}, down: {c: 'r[0]', a.b: 'r[1]'}}\n- each: {field: m, in: map, operations: [compute: {from: [.], to: [.], up: {.: item + 1}, down: {.: item - 1}}]}"))
	f.Add([]byte("operations:\n- hook: {name: swap, from: [a, c], to: [c, o.p]}\n- each: {field: ids, operations: [each: {field: ., operations: [wrap: {field: .}]}]}"))
	f.Add([]byte("operations:\n- compute:\n    from: [c]\n    to: [c]\n    up:\n      c: |\n        c.map(x,\n          x + y)\n    down: {c: c}"))
	f.Add([]byte("operations:\n- normalize: {field: s, steps: [trim, lower, emptyToAbsent]}\n- splitList: {field: s, separator: ':', tidy: true}\n- convert: {field: c, from: number, to: decimal}\n- each: {field: m, in: map, operations: [convert: {field: ., from: number, to: string}]}"))
	f.Add([]byte("operations:\n- normalize: {field: ids, steps: [sort, deduplicate]}\n- joinList: {field: u, separator: ','}\n- compute: {from: [a], to: [d], up: {d: \"{'y': a.b}\"}, down: {a: \"{'b': d.y}\"}}"))
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: bson.D{{Key: "b", Value: "5"}}}, {Key: "c", Value: 1}, {Key: "s", Value: "h:80"},
		{Key: "l", Value: bson.D{{Key: "id", Value: 1}, {Key: "b", Value: 2}}}, {Key: "u", Value: bson.A{"x"}}, {Key: "m", Value: bson.D{{Key: "k", Value: 1}}}, {Key: "ids", Value: bson.A{bson.A{1}, bson.A{}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := lens.Parse("fuzz.yaml", text, lens.WithHooks(lenstest.DrawnHooks))
		if err != nil {
			return
		}
		// Requests about any field are mapped or refused.
		for _, m := range []transform.Mapping{l.UpMapping(), l.DownMapping()} {
			for _, p := range []string{"a.b", "c", "l.*.b", "m.k", "s"} {
				_, _ = m.Field(p)
				_, _ = m.Order(p)
				_, _ = m.Compare(transform.Condition{Path: p, Op: transform.OpEqual, Values: []any{"h:80"}})
			}
		}
		up, err := l.Up(doc, nil)
		if err != nil {
			return
		}
		if err := up.Validate(); err != nil {
			t.Fatalf("%s\nmade %x: %v", text, []byte(up), err)
		}
		if _, err := l.Down(up, doc); err != nil {
			t.Fatalf("%s\nmade %s, which cannot go back: %v", text, up, err)
		}
	})
}

// FuzzRaw: no bytes make a lens panic, a well-formed document gives a well-formed one,
// and it comes back.
func FuzzRaw(f *testing.F) {
	l := lenstest.Of(f, "rename: {from: a, to: b}", "move: {from: c, to: o.c}", "convert: {field: n, from: int, to: string}", "convert: {field: o.d, from: date, to: rfc3339}",
		"convert: {field: t, table: {x: 1}}", "remove: {field: r}",
		"wrap: {field: w}", "unwrap: {field: uw}", "split: {field: s1, to: [s2, o.s3], separator: ':'}", "copy: {from: n, to: copied}",
		"each: {field: l, match: id, operations: [rename: {from: x, to: y}, remove: {field: z}]}", "each: {field: v, operations: [convert: {field: ., from: int, to: long}]}",
		"compute: {from: [q1, q2], to: [q], up: {q: '[q1, q2]'}, down: {q1: 'q[0]', q2: 'q[1]'}}")
	for _, d := range []bson.D{
		{},
		{{Key: "_id", Value: 1}, {Key: "a", Value: 1}, {Key: "c", Value: "x"}, {Key: "n", Value: 7}, {Key: "o", Value: bson.D{{Key: "d", Value: bson.DateTime(5)}}}},
		{{Key: "w", Value: 1}, {Key: "uw", Value: bson.A{1}}, {Key: "s1", Value: "a:b"}, {Key: "l", Value: bson.A{bson.D{{Key: "id", Value: 1}, {Key: "x", Value: 1}, {Key: "z", Value: 1}}, "x"}}, {Key: "v", Value: bson.A{1, nil}}},
		{{Key: "l", Value: bson.D{{Key: "k", Value: bson.D{{Key: "z", Value: 1}}}}}, {Key: "v", Value: bson.D{{Key: "k", Value: 1}}}, {Key: "q1", Value: bson.D{{Key: "deep", Value: bson.A{bson.Regex{Pattern: "x"}}}}}, {Key: "q2", Value: math.NaN()}},
		{{Key: "t", Value: "x"}, {Key: "r", Value: bson.Regex{Pattern: "a", Options: "i"}}, {Key: "bin", Value: []byte{1}}, {Key: "js", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{}}}},
		{{Key: "p", Value: bson.DBPointer{DB: "d"}}, {Key: "s", Value: bson.Symbol("s")}, {Key: "ts", Value: bson.Timestamp{T: 1}}, {Key: "u", Value: bson.Undefined{}}, {Key: "k", Value: bson.MinKey{}}, {Key: "arr", Value: bson.A{1, 2}}},
	} {
		b, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b))
	}
	// The string s has no bytes, not even its final zero.
	f.Add([]byte("\x15\x00\x00\x00\x03q1\x00\x0c\x00\x00\x00\x02s\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		valid := bsoncore.Document(doc).Validate() == nil
		kept := bytes.Clone(doc)
		up, err := l.Up(doc, nil)
		if !bytes.Equal(doc, kept) {
			t.Fatal("the source was written to")
		}
		if err != nil {
			return
		}
		if valid {
			if err := up.Validate(); err != nil {
				t.Fatalf("%x became %x: %v", doc, []byte(up), err)
			}
		}
		back, err := l.Down(up, doc)
		if err != nil {
			t.Fatalf("%x became %x, which cannot go back: %v", doc, []byte(up), err)
		}
		// With a name twice, the neighbour to go back behind is ambiguous.
		if !bytes.Equal(back, doc) && !repeatsName(doc) {
			t.Fatalf("%x became %x and came back as %x", doc, []byte(up), []byte(back))
		}
		_, _ = l.Down(doc, up)
		_, _ = l.MapIndex(doc)
		_, _ = l.TouchesValidator(doc)
	})
}

func repeatsName(doc bsoncore.Document) bool {
	elems, err := doc.Elements()
	if err != nil {
		return true
	}
	seen := map[string]bool{}
	for _, e := range elems {
		v := e.Value()
		if seen[e.Key()] || edit.HasItems(bson.Type(v.Type)) && repeatsName(v.Data) {
			return true
		}
		seen[e.Key()] = true
	}
	return false
}
