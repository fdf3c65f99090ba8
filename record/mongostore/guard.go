package mongostore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// guardField is the element of a managed kind's document that holds the guard. Clients
// write documents without it, which distinguishes their writes from ours. In documents
// of fixed-name kinds it is a field like any other.
const guardField = record.ReservedField

// maxGuardBytes is what guard and tombstone mark add to a document at most.
const maxGuardBytes = 64

const (
	maxDocument = 16 << 20 // that MongoDB stores
	// maxStatement bounds a document with its _id, which is added to it in an update and in
	// the oplog: both are 16 MiB and 16 KiB at most, and have some fields of their own.
	maxStatement = maxDocument + 12<<10
)

var (
	errMalformed = errors.New("document is not valid BSON")
	errNoID      = errors.New("document has no _id")
)

// layout is what the headers of a document's elements show.
type layout struct {
	id               bson.RawValue
	idStart, idEnd   int
	dbcStart, dbcEnd int  // of a managed kind's guard element; 0 when there is none
	emptyTS          bool // a field is a timestamp of zero, which the server fills in
	dollar           bool // a field's name begins with $, which an update does not take
}

// layoutOf walks the top-level elements. It does not look into values. In documents that
// are not a managed kind's it sees no guard, whatever their fields are called.
func layoutOf(doc []byte, managed bool) (layout, error) {
	var l layout
	if len(doc) < 5 || int(binary.LittleEndian.Uint32(doc)) != len(doc) || doc[len(doc)-1] != 0 {
		return l, errMalformed
	}
	for at := 4; at < len(doc)-1; {
		elem, _, ok := bsoncore.ReadElement(doc[at : len(doc)-1])
		if !ok {
			return l, errMalformed
		}
		end := at + len(elem)
		switch key := elem.KeyBytes(); {
		case string(key) == "_id":
			l.idStart, l.idEnd = at, end
			l.id = bson.RawValue{Type: bson.Type(elem[0]), Value: doc[at+1+len("_id")+1 : end]}
		case managed && string(key) == guardField:
			l.dbcStart, l.dbcEnd = at, end
		case len(key) > 0 && key[0] == '$':
			l.dollar = true
		}
		if bson.Type(elem[0]) == bson.TypeTimestamp && binary.LittleEndian.Uint64(elem[len(elem)-8:]) == 0 {
			l.emptyTS = true
		}
		at = end
	}
	return l, nil
}

// guard reads the guard element. An element of another form is no guard.
func (l layout) guard(doc []byte) (g record.Guard, tombstone bool) {
	if l.dbcStart == 0 || bson.Type(doc[l.dbcStart]) != bson.TypeEmbeddedDocument {
		return g, false
	}
	return guardOf(bson.Raw(doc[l.dbcStart+1+len(guardField)+1 : l.dbcEnd]))
}

// guardOf reads {g, x}, which is the guard element's value and, in addition to _id, what a
// side collection's document holds.
func guardOf(doc bson.Raw) (g record.Guard, tombstone bool) {
	if _, b, ok := doc.Lookup("g").BinaryOK(); ok {
		g, _ = record.GuardFrom(b)
	}
	tombstone, _ = doc.Lookup("x").BooleanOK()
	return g, tombstone
}

// strip removes the guard element in place and returns the shorter document. The bytes
// must be the caller's own.
func (l layout) strip(doc []byte) []byte {
	if l.dbcStart == 0 {
		return doc
	}
	doc = slices.Delete(doc, l.dbcStart, l.dbcEnd)
	binary.LittleEndian.PutUint32(doc, uint32(len(doc)))
	return doc
}

func appendGuardFields(dst []byte, g []byte, tombstone bool) []byte {
	dst = bsoncore.AppendBinaryElement(dst, "g", bson.TypeBinaryGeneric, g)
	if tombstone {
		dst = bsoncore.AppendBooleanElement(dst, "x", true)
	}
	return dst
}

// appendStored appends a live document as it is stored, with the guard as last element
// unless g is nil. The _id goes first, where the server would put it anyway: in an
// update, a first field that begins with $ would be taken for an operator.
func appendStored(dst, doc []byte, l layout, g []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if l.idStart == 4 {
		dst = append(dst, doc[4:len(doc)-1]...)
	} else {
		dst = append(dst, doc[l.idStart:l.idEnd]...)
		dst = append(dst, doc[4:l.idStart]...)
		dst = append(dst, doc[l.idEnd:len(doc)-1]...)
	}
	if g != nil {
		var at int
		dst, at = beginElement(dst, bson.TypeEmbeddedDocument, guardField)
		dst = appendGuardFields(dst, g, false)
		dst = endDocument(dst, at)
	}
	return endDocument(dst, start)
}

// appendTombstone appends a managed kind's tombstone.
func appendTombstone(dst []byte, id bson.RawValue, g []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendValueElement(dst, "_id", id)
	dst, at := beginElement(dst, bson.TypeEmbeddedDocument, guardField)
	dst = appendGuardFields(dst, g, true)
	dst = endDocument(dst, at)
	return endDocument(dst, start)
}

// appendSide appends a document of a side collection.
func appendSide(dst []byte, id bson.RawValue, g []byte, tombstone bool) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendValueElement(dst, "_id", id)
	dst = appendGuardFields(dst, g, tombstone)
	return endDocument(dst, start)
}

// checkDoc refuses what must not be stored.
func checkDoc(doc []byte, managed bool) (layout, error) {
	l, err := layoutOf(doc, managed)
	switch {
	case err != nil:
		return l, err
	case l.idStart == 0:
		return l, errNoID
	case l.dbcStart != 0:
		return l, record.ErrReserved
	}
	return l, nil
}

// checkSize refuses a document that MongoDB would not take as it is to be stored. guard is
// what is added to it. Sent, it would end the transaction of others as well, and of the
// ways in which the server reports it some look like a failure that another try cures.
func checkSize(doc []byte, l layout, guard int) error {
	size := len(doc) + guard
	switch {
	case size > maxDocument && guard > 0:
		return fmt.Errorf("%w: it has %d bytes, with the %d that a managed kind's record carries in addition to its fields, and MongoDB takes %d: make it smaller", record.ErrOversize, size, guard, maxDocument)
	case size > maxDocument:
		return fmt.Errorf("%w: it has %d bytes, and MongoDB takes %d: make it smaller", record.ErrOversize, size, maxDocument)
	case size+2*len(l.id.Value) > maxStatement:
		return fmt.Errorf("%w: it has %d bytes and an _id of %d, which MongoDB cannot write together: make it smaller", record.ErrOversize, size, len(l.id.Value))
	default:
		return nil
	}
}

// guardBytes is what the guard element adds to a live document.
var guardBytes = len(appendStored(nil, emptyDocument, layout{idStart: 4, idEnd: 4}, record.Guard{}.Bytes())) - len(emptyDocument)

var emptyDocument = []byte{5, 0, 0, 0, 0}

// validate looks at a whole document, which the driver's own validation does not.
func validate(doc bson.Raw) error {
	if err := doc.Validate(); err != nil {
		return err
	}
	values, err := doc.Values()
	if err != nil {
		return err
	}
	for _, v := range values {
		switch v.Type {
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			err = validate(bson.Raw(v.Value))
		case bson.TypeCodeWithScope:
			_, scope, ok := v.CodeWithScopeOK()
			if !ok {
				return errMalformed
			}
			err = validate(scope)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
