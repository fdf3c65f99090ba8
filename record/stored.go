package record

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Stored returns a document in the field order that MongoDB stores: the _id moves to the front.
// Call it before comparing a document byte for byte with a stored one; otherwise the two may differ
// forever. It returns doc itself if the _id is in front already, or if doc is no readable document
// with an _id.
func Stored(doc bson.Raw) bson.Raw {
	const header = "_id\x00"
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 {
		return doc
	}
	for len(rest) > 1 {
		elem, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return doc
		}
		if len(elem) > len(header) && string(elem[1:1+len(header)]) == header {
			from := len(doc) - len(rest)
			// The _id is the first field already, so no copy is needed.
			if from == 4 {
				return doc
			}
			out := make(bson.Raw, 0, len(doc))
			out = append(out, doc[:4]...)
			out = append(out, elem...)
			out = append(out, doc[4:from]...)
			return append(out, after...)
		}
		rest = after
	}
	return doc
}
