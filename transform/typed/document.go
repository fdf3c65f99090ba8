package typed

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// object is a document whose fields are under change. The values keep their bytes.
type object struct{ elems []*element }

type element struct {
	name []byte // points into the document; never written to
	val  bson.RawValue
}

// open splits a document into its elements, which share its bytes.
func open(doc bson.Raw) (*object, error) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 || doc[length-1] != 0 {
		return nil, errors.New("the document is broken")
	}
	// One allocation for all elements. 32 bytes is a guess at the size of an average element.
	all := make([]element, 0, 4+len(doc)/32)
	for len(rest) > 1 { // the last byte is the terminator
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return nil, errors.New("the document is broken")
		}
		name := e.KeyBytes()
		all = append(all, element{name: name, val: bson.RawValue{Type: bson.Type(e[0]), Value: e[len(name)+2:]}})
		rest = after
	}
	o := &object{elems: make([]*element, len(all), len(all)+4)}
	for i := range all {
		o.elems[i] = &all[i]
	}
	return o, nil
}

// find returns the element with a name, or nil. A duplicate name is an error, because it is unclear
// which value counts.
func (o *object) find(name string) (found *element, err error) {
	for _, e := range o.elems {
		if string(e.name) != name {
			continue
		}
		// Do not stop at the first hit, or a duplicate would go unnoticed.
		if found != nil {
			return nil, fmt.Errorf("field %s is there twice", name)
		}
		found = e
	}
	return found, nil
}

func (o *object) remove(e *element) {
	o.elems = slices.DeleteFunc(o.elems, func(x *element) bool { return x == e })
}

func (o *object) encode(dst []byte) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	for _, e := range o.elems {
		dst = append(append(append(dst, byte(e.val.Type)), e.name...), 0)
		dst = append(dst, e.val.Value...)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at) // cannot fail: at is our own start
	return dst
}
