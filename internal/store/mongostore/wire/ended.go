package wire

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// EndedField is the field of the _id of a side collection's documents that are no guards. Each says
// that appliers with a mark can no longer write (record.Token.Mark).
const EndedField = "dbc_ended"

// endedField is the first field of such an _id, as it is encoded.
var endedField = string([]byte{byte(bson.TypeString)}) + EndedField + "\x00"

// EndedID returns the _id of the document that ends a mark.
func EndedID(mark string) bson.D { return bson.D{{Key: EndedField, Value: mark}} }

// EndedKey returns the key of the document that ends a mark.
func EndedKey(mark string) (record.Key, error) {
	return record.KeyOf(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: MustMarshal(EndedID(mark))})
}

// IsEnded reports whether a key belongs to a document that ends a mark.
func IsEnded(k record.Key) bool {
	const header = 5 // type and size
	return len(k) > header && bson.Type(k[0]) == bson.TypeEmbeddedDocument && strings.HasPrefix(string(k[header:]), endedField)
}

// EndsMark reports whether a document of a side collection has the key of an EndedKey.
func EndsMark(doc []byte, key record.Key) bool {
	id, err := bson.Raw(doc).LookupErr("_id")
	if err != nil || id.Type != bson.TypeEmbeddedDocument {
		return false
	}
	have, err := record.KeyOf(id)
	return err == nil && have == key
}
