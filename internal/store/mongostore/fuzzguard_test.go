package mongostore

import (
	"bytes"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzGuard: a document's guard is one that Apply wrote, or none, and the rest of the document
// remains.
func FuzzGuard(f *testing.F) {
	guard := record.Guard{Epoch: 3, Version: record.Version{1}}
	stored := mustMarshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: "b"}})
	l, err := layoutOf(stored, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendStored(nil, stored, l, guard.Bytes()))
	f.Add(appendTombstone(nil, l.id, guard.Bytes()))
	f.Add(appendSide(nil, l.id, guard.Bytes(), true))
	f.Add([]byte(mustMarshal(bson.D{{Key: guardField, Value: bson.D{{Key: "g", Value: "x"}, {Key: "x", Value: 1}}}, {Key: guardField, Value: 1}})))
	f.Add([]byte(stored[:9]))
	f.Fuzz(func(t *testing.T, doc []byte) {
		g, tombstone := guardOf(doc)
		l, err := layoutOf(doc, true)
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if l.idStart != 0 {
			side := appendSide(nil, l.id, g.Bytes(), tombstone)
			if again, dead := guardOf(side); again != g || dead != tombstone {
				t.Errorf("%+v, %t is read again as %+v, %t", g, tombstone, again, dead)
			}
		}
		in, dead := l.guard(doc)
		if l.dbcStart == 0 && (in != record.Guard{} || dead) {
			t.Errorf("%+v, %t without a guard", in, dead)
		}
		rest := l.strip(bytes.Clone(doc))
		if _, err := layoutOf(rest, true); err != nil || len(rest) != len(doc)-(l.dbcEnd-l.dbcStart) {
			t.Errorf("%x without its guard is %x: %v", doc, rest, err)
		}
	})
}
