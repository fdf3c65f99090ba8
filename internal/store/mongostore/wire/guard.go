package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// GuardField is the element of a managed kind's document that holds the guard. Clients write
// documents without it, which distinguishes their writes from an Apply. In documents of fixed-name
// kinds it is a field like any other.
const GuardField = record.ReservedField

// MaxGuardBytes bounds the bytes that guard and tombstone mark add to a document.
const MaxGuardBytes = 64

const (
	MaxDocument = 16 << 20 // limit of MongoDB
	// MaxStatement bounds a document with its _id. An update and an oplog entry contain the _id
	// once more, have some fields of their own, and may have 16 MiB and 16 KiB.
	MaxStatement = MaxDocument + 12<<10
)

var (
	ErrMalformed = errors.New("document is not valid BSON")
	errNoID      = errors.New("document has no _id")
)

// Layout describes the top-level elements of a document.
type Layout struct {
	ID               bson.RawValue
	IdStart, idEnd   int
	dbcStart, dbcEnd int  // of a managed kind's guard element; 0: none
	EmptyTS          bool // a field is the zero timestamp, which the server replaces
	Dollar           bool // a field's name begins with $, which an update refuses
}

// LayoutOf walks the top-level elements. It looks into values only to refuse a document with too many
// levels. If the document is not of a managed kind, it sees no guard, whatever the names of the
// fields are.
func LayoutOf(doc []byte, managed bool) (Layout, error) {
	var l Layout
	if len(doc) < 5 || int(binary.LittleEndian.Uint32(doc)) != len(doc) || doc[len(doc)-1] != 0 {
		return l, ErrMalformed
	}
	// Recursive readers of the document rely on this.
	if rawdoc.DocTooDeep(doc) {
		return l, fmt.Errorf("%w: it has too many documents within documents", ErrMalformed)
	}
	for at := 4; at < len(doc)-1; {
		elem, _, ok := bsoncore.ReadElement(doc[at : len(doc)-1])
		if !ok {
			return l, ErrMalformed
		}
		end := at + len(elem)
		switch key := elem.KeyBytes(); {
		case string(key) == "_id":
			l.IdStart, l.idEnd = at, end
			l.ID = bson.RawValue{Type: bson.Type(elem[0]), Value: doc[at+1+len("_id")+1 : end]}
		case managed && string(key) == GuardField:
			l.dbcStart, l.dbcEnd = at, end
		case len(key) > 0 && key[0] == '$':
			l.Dollar = true
		}
		// The server replaces only top-level zero timestamps, so nested ones do not matter.
		if bson.Type(elem[0]) == bson.TypeTimestamp && binary.LittleEndian.Uint64(elem[len(elem)-8:]) == 0 {
			l.EmptyTS = true
		}
		at = end
	}
	return l, nil
}

// Guard reads the guard element. An element of another form is no guard.
func (l Layout) Guard(doc []byte) (g record.Guard, tombstone bool) {
	if l.dbcStart == 0 || bson.Type(doc[l.dbcStart]) != bson.TypeEmbeddedDocument {
		return g, false
	}
	return GuardOf(bson.Raw(doc[l.dbcStart+1+len(GuardField)+1 : l.dbcEnd]))
}

// GuardOf reads {g, x}. That is the value of the guard element, and part of a side collection's
// document.
func GuardOf(doc bson.Raw) (g record.Guard, tombstone bool) {
	if _, b, ok := doc.Lookup("g").BinaryOK(); ok {
		g, _ = record.GuardFrom(b)
	}
	tombstone, _ = doc.Lookup("x").BooleanOK()
	return g, tombstone
}

// Strip removes the guard element in place and returns the shorter document. The caller must own
// the bytes.
func (l Layout) Strip(doc []byte) []byte {
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

// AppendGuard appends the guard element of a managed kind.
func AppendGuard(dst, g []byte, tombstone bool) []byte {
	dst, at := BeginElement(dst, bson.TypeEmbeddedDocument, GuardField)
	return EndDocument(appendGuardFields(dst, g, tombstone), at)
}

// AppendStored appends a live document in stored form. The guard is the last element unless g is
// nil. The _id goes first, where the server would put it anyway. In an update, a first field that
// begins with $ would be read as an operator.
func AppendStored(dst, doc []byte, l Layout, g []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if l.IdStart == 4 {
		dst = append(dst, doc[4:len(doc)-1]...)
	} else {
		dst = append(dst, doc[l.IdStart:l.idEnd]...)
		dst = append(dst, doc[4:l.IdStart]...)
		dst = append(dst, doc[l.idEnd:len(doc)-1]...)
	}
	if g != nil {
		dst = AppendGuard(dst, g, false)
	}
	return EndDocument(dst, start)
}

// AppendTombstone appends the tombstone of a managed kind.
func AppendTombstone(dst []byte, id bson.RawValue, g []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendValueElement(dst, "_id", id)
	return EndDocument(AppendGuard(dst, g, true), start)
}

// AppendSide appends a document of a side collection.
func AppendSide(dst []byte, id bson.RawValue, g []byte, tombstone bool) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendValueElement(dst, "_id", id)
	dst = appendGuardFields(dst, g, tombstone)
	return EndDocument(dst, start)
}

// CheckDoc refuses a document that must not be stored.
func CheckDoc(doc []byte, managed bool) (Layout, error) {
	l, err := LayoutOf(doc, managed)
	switch {
	case err != nil:
		return l, err
	case l.IdStart == 0:
		return l, errNoID
	case l.dbcStart != 0:
		return l, record.ErrReserved
	}
	return l, nil
}

// CheckSize refuses a document that is too large for MongoDB in stored form. guard is the size that
// the guard adds. Sent to the server, the document would fail the transaction of other groups too.
// Some of the server's errors for it look temporary.
func CheckSize(doc []byte, l Layout, guard int) error {
	size := len(doc) + guard
	switch {
	case size > MaxDocument && guard > 0:
		return fmt.Errorf("%w: it has %d bytes, including %d bytes that a record of a managed kind has besides its fields, but MongoDB accepts %d: make it smaller", record.ErrOversize, size, guard, MaxDocument)
	case size > MaxDocument:
		return fmt.Errorf("%w: it has %d bytes, but MongoDB accepts %d: make it smaller", record.ErrOversize, size, MaxDocument)
	case size+2*len(l.ID.Value) > MaxStatement:
		return fmt.Errorf("%w: it has %d bytes and an _id of %d bytes, which MongoDB cannot write together: make it smaller", record.ErrOversize, size, len(l.ID.Value))
	default:
		return nil
	}
}

// GuardBytes is the size that the guard element adds to a live document.
var GuardBytes = len(AppendStored(nil, EmptyDocument, Layout{IdStart: 4, idEnd: 4}, record.Guard{}.Bytes())) - len(EmptyDocument)

var EmptyDocument = []byte{5, 0, 0, 0, 0}
