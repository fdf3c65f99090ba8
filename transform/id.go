package transform

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// idOf finds the top-level _id of a document. It skips elements by their lengths and does not
// allocate. The result has no bytes for an _id that is null, MinKey or MaxKey.
func idOf(doc []byte) (bson.RawValue, bool) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 {
		return bson.RawValue{}, false
	}
	for len(rest) > 1 {
		elem, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return bson.RawValue{}, false
		}
		// elem is a type byte, the field name with its zero byte, and the value.
		if len(elem) >= 5 && string(elem[1:5]) == "_id\x00" {
			return bson.RawValue{Type: bson.Type(elem[0]), Value: elem[5:]}, true
		}
		rest = after
	}
	return bson.RawValue{}, false
}
