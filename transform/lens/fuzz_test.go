package lens

import (
	"bytes"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// FuzzParse: no text makes the parser panic, and what it accepts runs both ways.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../../sample/packages/packages.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("operations: []"))
	f.Add([]byte("lens: 1\noperations:\n- add: {field: a, value: {$date: {$numberLong: '5'}}}\n- remove: {field: b, default: [1, .inf, ~, 1.5, yes]}"))
	f.Add([]byte("operations: [{convert: {field: a.b, from: string, to: int}}, {convert: {field: c, table: {1: a, true: b}}}]"))
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: bson.D{{Key: "b", Value: "5"}}}, {Key: "c", Value: 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Parse("fuzz.yaml", text)
		if err != nil {
			return
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
	l := parse(f, "rename: {from: a, to: b}", "move: {from: c, to: o.c}", "convert: {field: n, from: int, to: string}", "convert: {field: o.d, from: date, to: rfc3339}",
		"convert: {field: t, table: {x: 1}}", "remove: {field: r}")
	for _, d := range []bson.D{
		{},
		{{Key: "_id", Value: 1}, {Key: "a", Value: 1}, {Key: "c", Value: "x"}, {Key: "n", Value: 7}, {Key: "o", Value: bson.D{{Key: "d", Value: bson.DateTime(5)}}}},
		{{Key: "t", Value: "x"}, {Key: "r", Value: bson.Regex{Pattern: "a", Options: "i"}}, {Key: "bin", Value: []byte{1}}, {Key: "js", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{}}}},
		{{Key: "p", Value: bson.DBPointer{DB: "d"}}, {Key: "s", Value: bson.Symbol("s")}, {Key: "ts", Value: bson.Timestamp{T: 1}}, {Key: "u", Value: bson.Undefined{}}, {Key: "k", Value: bson.MinKey{}}, {Key: "arr", Value: bson.A{1, 2}}},
	} {
		b, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b))
	}
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
		if sub, ok := e.Value().DocumentOK(); seen[e.Key()] || ok && repeatsName(sub) {
			return true
		}
		seen[e.Key()] = true
	}
	return false
}
