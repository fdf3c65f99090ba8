// Package rawdoc reads BSON from a server or another process that nobody has validated. The driver
// validates the top level of a reply only. Deeper, some of its functions fail badly:
//
//   - bson.Raw.Lookup and LookupErr with several keys panic at a damaged document on the way.
//   - bson.Unmarshal into a struct never returns for a negative length in an unknown field.
//   - Each recursive function overflows the stack at a document with millions of levels, which ends
//     the process.
//
// Begin to read at Validate.
//
// It is not for users and may change with any version.
package rawdoc

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// MaxDepth is the maximum number of levels that a document may have. MongoDB stores at most 250.
const MaxDepth = 500

var (
	errMalformed = errors.New("a document in it is not valid BSON")
	errDeep      = errors.New("it has too many documents within documents")
)

// Lookup returns the value at a path of field names and list indexes, like bson.Raw.Lookup. It
// returns the zero value if the path leads nowhere or a document on the way is damaged.
func Lookup(doc bson.Raw, path ...string) bson.RawValue {
	at := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
	for _, name := range path {
		// Only documents and arrays have fields.
		if at.Type != bson.TypeEmbeddedDocument && at.Type != bson.TypeArray {
			return bson.RawValue{}
		}
		at = bson.Raw(at.Value).Lookup(name)
	}
	return at
}

// Unmarshal decodes a document after Validate.
func Unmarshal(doc bson.Raw, into any) error {
	if err := Validate(doc); err != nil {
		return err
	}
	return bson.Unmarshal(doc, into)
}

// Validate validates a whole document, with nested ones.
func Validate(doc bson.Raw) error { return validate(doc, 1) }

func validate(doc bson.Raw, depth int) error {
	if depth > MaxDepth {
		return errDeep
	}
	if err := doc.Validate(); err != nil {
		return err
	}
	length, _, ok := bsoncore.ReadLength(doc)
	if !ok {
		return errMalformed
	}
	// Nested documents are only framed by the check of the outer one. There is no list of all values, because a
	// document of empty values would take many times its size.
	for rest := doc[4 : length-1]; len(rest) > 0; {
		element, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return errMalformed
		}
		rest = after
		v := element.Value()
		inner, has, err := within(bson.RawValue{Type: bson.Type(v.Type), Value: v.Data})
		if err != nil {
			return err
		}
		if !has {
			continue
		}
		if err := validate(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// within returns the document inside a value.
func within(v bson.RawValue) (doc bson.Raw, has bool, err error) {
	switch v.Type {
	// An array is a document with numbered fields.
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return v.Value, true, nil
	case bson.TypeCodeWithScope:
		_, scope, ok := v.CodeWithScopeOK()
		if !ok {
			return nil, false, errMalformed
		}
		return scope, true, nil
	default:
		return nil, false, nil
	}
}
