package record

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Match compares one field, by dotted path, with a value, as database equality does. With
// an empty Path it compares the whole document, in the order of its fields, with the
// document that Value is.
type Match struct {
	Path  string
	Value bson.RawValue
}

// MatchDoc matches a record that is still what it was when doc was read.
func MatchDoc(doc bson.Raw) *Match {
	return &Match{Value: bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}}
}

// Holds reports whether a document matches: numbers by value, null as a missing field.
func (m Match) Holds(doc bson.Raw) bool {
	have := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
	if m.Path != "" {
		var err error
		if have, err = doc.LookupErr(strings.Split(m.Path, ".")...); err != nil {
			return m.Value.Type == bson.TypeNull
		}
	}
	a, errA := KeyOf(have)
	b, errB := KeyOf(m.Value)
	return errA == nil && errB == nil && a == b
}
