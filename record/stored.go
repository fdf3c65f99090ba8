package record

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Stored returns a document as a database stores it: with its _id before all other fields,
// where MongoDB moves it. A document that is compared byte for byte with a stored one goes
// through Stored first; otherwise the two differ for ever. The result is doc itself where
// nothing has to move, and where doc is no readable document with an _id.
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
