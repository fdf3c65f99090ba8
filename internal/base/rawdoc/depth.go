package rawdoc

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// levelBytes is the minimum size of one more level: the type and the end of the name of an element,
// and the length of the document in it.
const levelBytes = 1 + 1 + 4

// TooDeep reports whether a value has more than MaxDepth levels. It costs next to nothing for a
// value that is too small for them.
func TooDeep(v bson.RawValue) bool { return tooDeep(v, MaxDepth) }

// DocTooDeep is TooDeep for a document.
func DocTooDeep(doc []byte) bool {
	return TooDeep(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc})
}

func tooDeep(v bson.RawValue, left int) bool {
	// Skipping small values is what makes this cheap enough for each record.
	if len(v.Value) < left*levelBytes {
		return false
	}
	doc, has, err := within(v)
	if err != nil || !has || len(doc) < 4 {
		return false // the readers of the value report the error
	}
	if left <= 0 {
		return true
	}
	for rest := doc[4:]; len(rest) > 0; {
		element, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return false
		}
		in := element.Value()
		if tooDeep(bson.RawValue{Type: bson.Type(in.Type), Value: in.Data}, left-1) {
			return true
		}
		rest = after
	}
	return false
}
