package etcdstore

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzEnvelope: the value of a record's key is one of ours, with a valid document, or an error.
func FuzzEnvelope(f *testing.F) {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "x"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(envelope{guard: record.Guard{Epoch: 1}, doc: doc}.bytes()))
	f.Add([]byte(envelope{}.bytes()))
	f.Add([]byte{format, hasGuard, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := open(value)
		if err != nil {
			return
		}
		if e.doc != nil && valid(e.doc) != nil {
			t.Errorf("%x has the document %x", value, e.doc)
		}
		again, err := open([]byte(e.bytes()))
		if err != nil || again.guard != e.guard || !bytes.Equal(again.doc, e.doc) || (again.doc == nil) != (e.doc == nil) {
			t.Errorf("%x is %+v, and read again %+v: %v", value, e, again, err)
		}
	})
}

// FuzzDocument: what an application wrote comes back as it is, or is refused.
func FuzzDocument(f *testing.F) {
	f.Add(true, "x", []byte(`{"n": 1.5, "l": {"$numberLong": "5"}, "at": {"$date": "2026-01-01T00:00:00Z"}, "a": [null, true, "ä"]}`))
	f.Add(true, "x", []byte(`{"a": {"a": {"$oid": "zz"}}, "a": 1e400} {}`))
	f.Add(true, "\xff", []byte(`{"_id": 1}`))
	f.Add(false, "x", []byte{5, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, isJSON bool, name string, value []byte) {
		format := BSON
		if isJSON {
			format = JSON
		}
		doc, err := format.document(name, value)
		if err != nil {
			return
		}
		if err := valid(doc); err != nil {
			t.Fatalf("%q is no document: %v", value, err)
		}
		back, err := format.value(doc)
		if err != nil {
			t.Fatalf("%q cannot be written back: %v", value, err)
		}
		if again, err := format.document(name, back); err != nil || !bytes.Equal(again, doc) {
			t.Errorf("%q became %s, and %q became %s: %v", value, doc, back, again, err)
		}
	})
}

// FuzzNoted: what else is kept of a collection is read, or is an error.
func FuzzNoted(f *testing.F) {
	text, err := bson.Marshal(map[string]record.Label{"id": {Field: "_sealed", Begins: [][]byte{{1}}, Absent: true}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, value []byte) {
		s := &Store{}
		if have, _, err := s.learn(value, 1); err == nil && have == nil {
			t.Error("neither labels nor an error")
		}
		_, _ = decoded[claim]("claim", value)
	})
}
