package wire

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
	stored := MustMarshal(bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: "b"}})
	l, err := LayoutOf(stored, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(AppendStored(nil, stored, l, guard.Bytes()))
	f.Add(AppendTombstone(nil, l.ID, guard.Bytes()))
	f.Add(AppendSide(nil, l.ID, guard.Bytes(), true))
	f.Add([]byte(MustMarshal(bson.D{{Key: GuardField, Value: bson.D{{Key: "g", Value: "x"}, {Key: "x", Value: 1}}}, {Key: GuardField, Value: 1}})))
	f.Add([]byte(stored[:9]))
	f.Fuzz(func(t *testing.T, doc []byte) {
		g, tombstone := GuardOf(doc)
		l, err := LayoutOf(doc, true)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if l.IdStart != 0 {
			side := AppendSide(nil, l.ID, g.Bytes(), tombstone)
			if again, dead := GuardOf(side); again != g || dead != tombstone {
				t.Errorf("%+v, %t is read again as %+v, %t", g, tombstone, again, dead)
			}
		}
		in, dead := l.Guard(doc)
		if l.dbcStart == 0 && (in != record.Guard{} || dead) {
			t.Errorf("%+v, %t without a guard", in, dead)
		}
		rest := l.Strip(bytes.Clone(doc))
		if _, err := LayoutOf(rest, true); err != nil || len(rest) != len(doc)-(l.dbcEnd-l.dbcStart) {
			t.Errorf("%x without its guard is %x: %v", doc, rest, err)
		}
	})
}
