package lint

import (
	"encoding/binary"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// edited changes the values of fields that only one version has, as that version's application
// would. The types stay. Records without such fields are unchanged.
func edited(rs []record.Record, main string, losses []declared) []record.Record {
	// The original records are still needed for other laws.
	out := slices.Clone(rs)
	for i := range out {
		for _, l := range losses {
			if l.path[0] == "_id" || l.emptiness {
				continue // another _id would be another record; an empty list has no other value
			}
			if l.kind == out[i].Kind || l.kind == "" && out[i].Kind == main {
				out[i].Doc = editAt(out[i].Doc, l.path)
			}
		}
	}
	return out
}

// editAt changes the values at a path, where "*" is any item or entry.
func editAt(doc bson.Raw, path []string) bson.Raw {
	elems, err := doc.Elements()
	if err != nil {
		return doc
	}
	at, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+8))
	changed := false
	for _, e := range elems {
		v := e.Value()
		switch {
		case path[0] != "*" && path[0] != e.Key():
		case len(path) == 1:
			v = otherValue(v)
			changed = true
		case v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray:
			v.Value = editAt(v.Value, path[1:])
			changed = true
		}
		out = bsoncore.AppendHeader(out, bsoncore.Type(v.Type), e.Key())
		out = append(out, v.Value...)
	}
	if !changed {
		return doc
	}
	out, err = bsoncore.AppendDocumentEnd(out, at)
	if err != nil {
		return doc
	}
	return out
}

// otherValue returns another value of the same type. It leaves types without an obvious one.
func otherValue(v bson.RawValue) bson.RawValue {
	b := slices.Clone(v.Value)
	switch v.Type {
	case bson.TypeInt32:
		// Flipping one bit always gives another value, without an overflow.
		binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)^1)
	case bson.TypeInt64, bson.TypeDateTime:
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^1)
	case bson.TypeDouble:
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		binary.LittleEndian.PutUint64(b, math.Float64bits(f+1))
	case bson.TypeBoolean:
		b[0] ^= 1
	case bson.TypeString:
		text, _ := v.StringValueOK()
		b = bsoncore.AppendString(nil, text+"~")
	case bson.TypeNull:
		// null has no other value, so change the type.
		v.Type, b = bson.TypeString, bsoncore.AppendString(nil, "~")
	}
	return bson.RawValue{Type: v.Type, Value: b}
}

// renamed returns a record with another _id.
func renamed(doc bson.Raw, id bson.RawValue) bson.Raw {
	elems, err := doc.Elements()
	if err != nil {
		return nil
	}
	at, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+len(id.Value)))
	for _, e := range elems {
		v := e.Value()
		if e.Key() == "_id" {
			v = id
		}
		out = bsoncore.AppendHeader(out, bsoncore.Type(v.Type), e.Key())
		out = append(out, v.Value...)
	}
	if out, err = bsoncore.AppendDocumentEnd(out, at); err != nil {
		return nil
	}
	return out
}
