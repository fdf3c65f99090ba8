package edit

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// findRaw finds an element of an unopened document. The element is doc[at:end].
func findRaw(doc []byte, name []byte) (v bson.RawValue, at, end int, ok bool) {
	if len(doc) < 5 {
		return v, 0, 0, false
	}
	last := len(doc) - 1
	// The callers need one or two fields, so do not build a node.
	for at = 4; at < last; at = end {
		nameAt := at + 1
		valueAt := nameAt
		for valueAt < last && doc[valueAt] != 0 {
			valueAt++
		}
		if valueAt >= last {
			break
		}
		size, fits := valueSize(bson.Type(doc[at]), doc[valueAt+1:last])
		if !fits {
			break
		}
		end = valueAt + 1 + size
		if string(doc[nameAt:valueAt]) == string(name) {
			return bson.RawValue{Type: bson.Type(doc[at]), Value: doc[valueAt+1 : end : end]}, at, end, true
		}
	}
	return v, 0, 0, false
}

// LookupRaw returns the value at p in an unopened document. The value shares the document's memory.
// ok is false if the value is absent, or if p leads through a value that is no object.
func LookupRaw(doc bson.Raw, p Path) (v bson.RawValue, ok bool) {
	for depth, part := range p {
		if depth > 0 {
			if v.Type != bson.TypeEmbeddedDocument {
				return bson.RawValue{}, false
			}
			doc = v.Value
		}
		if v, _, _, ok = findRaw(doc, part); !ok {
			return bson.RawValue{}, false
		}
	}
	return v, ok
}

// WithID returns a copy of a document with another _id. It returns false if the document has no
// _id.
func WithID(doc bson.Raw, id bson.RawValue) (bson.Raw, bool) {
	_, at, end, ok := findRaw(doc, FieldID)
	if !ok {
		return nil, false
	}
	out := make([]byte, 0, len(doc)+len(id.Value)+8-(end-at))
	out = append(out, doc[:at]...)
	out = append(append(out, byte(id.Type)), "_id\x00"...)
	out = append(append(out, id.Value...), doc[end:]...)
	PutLength(out, len(out))
	return out, true
}

// StringKey returns the record.Key of a name. appendTo appends the name to the given slice and
// returns it.
func StringKey(appendTo func([]byte) []byte) record.Key {
	// Most keys fit, so only the final conversion allocates.
	var buf [128]byte
	b := appendTo(append(buf[:0], byte(bson.TypeString), 0, 0, 0, 0))
	b = append(b, 0)
	PutLength(b[1:], len(b)-5)
	return record.Key(b)
}

// PutLength writes the length n into the first four bytes of b, as BSON documents and strings have
// it.
func PutLength(b []byte, n int) { binary.LittleEndian.PutUint32(b, uint32(n)) }

// FieldID is the name of the field _id.
var FieldID = []byte("_id")

// Id returns the _id, or the part of one, that appendTo appends. The value lies in the editor's
// scratch memory.
func (e *Editor) Id(appendTo func([]byte) (bson.Type, []byte)) (bson.Type, []byte) {
	at := len(e.Scratch)
	typ, dst := appendTo(e.Scratch)
	e.Scratch = dst
	return typ, dst[at:len(dst):len(dst)]
}

// Text returns the string value whose text appendTo appends. The value lies in the editor's scratch
// memory.
func (e *Editor) Text(appendTo func([]byte) []byte) []byte {
	at := len(e.Scratch)
	dst := appendTo(append(e.Scratch, 0, 0, 0, 0))
	dst = append(dst, 0)
	// The length includes the zero byte, and not itself.
	PutLength(dst[at:], len(dst)-at-4)
	e.Scratch = dst
	return dst[at:len(dst):len(dst)]
}
