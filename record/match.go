package record

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
)

// Match compares one field, by dotted path, with a value, under the database's equality. With an
// empty Path it compares the whole document with Value, which is then a document. The order of
// fields counts.
type Match struct {
	Path  string
	Value bson.RawValue
}

// MatchDoc returns a Match that holds while the record still equals doc.
func MatchDoc(doc bson.Raw) *Match {
	return &Match{Value: bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}}
}

// Holds reports whether a document matches. It compares numbers by value and treats a missing field
// as null.
func (m Match) Holds(doc bson.Raw) bool {
	have := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
	if m.Path != "" {
		if have = rawdoc.Lookup(doc, strings.Split(m.Path, ".")...); have.Type == 0 {
			// A missing field equals null, as in a query.
			return m.Value.Type == bson.TypeNull
		}
	}
	// Keys are canonical, so equal numbers of different types match.
	a, errA := KeyOf(have)
	b, errB := KeyOf(m.Value)
	return errA == nil && errB == nil && a == b
}
