package lens

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// op is one operation in one direction. Every op has an inverse, so the way down is
// the inverses in reverse order.
//
// What an op does to requests follows from trace; one that can do more than that is
// also a comparer, a spreader or a sorter (mapping.go). One that keeps fields which
// only the far side has is a holder (program.go).
type op interface {
	// String names the operation and its fields as the lens does, for errors.
	String() string
	apply(e *editor, root *node) error
	inverse() op
	// trace returns where a path of the side before is on the side after.
	trace(p path) (path, fate)
	// takes and makes are the paths that a record has only before, and only after.
	takes() []path
	makes() []path
	// changes are the paths whose values are others afterwards, each seen as one value.
	changes() []path
}

// fate is what becomes of a path.
type fate int

const (
	kept      fate = iota // the same values, perhaps under another path
	converted             // there, with other values
	covers                // what lies within it changes, or is partly elsewhere
	spread                // its value is made into others, under other paths
	gone                  // the other side does not have it
	clashes               // the side before cannot have it at all
)

// TypeName is what lenses and their messages call a type.
func TypeName(t bson.Type) string {
	switch t {
	case bson.TypeInt32:
		return "int"
	case bson.TypeInt64:
		return "long"
	case bson.TypeEmbeddedDocument:
		return "object"
	case bson.TypeArray:
		return "list"
	case bson.TypeBoolean:
		return "bool"
	case bson.TypeDecimal128:
		return "decimal"
	case bson.TypeDateTime:
		return "date"
	case bson.TypeObjectID:
		return "objectId"
	default:
		return t.String()
	}
}

// show writes a value for an error: not all of a long one. transform.Conceal takes it out
// again before the error is stored with a parked record, unless the operator allows it.
func show(t bson.Type, val []byte) string {
	const most = 80
	s := bson.RawValue{Type: t, Value: val}.String()
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

var (
	_ op = (*rename)(nil)
	_ op = (*move)(nil)
	_ op = (*add)(nil)
	_ op = (*drop)(nil)
	_ op = (*convert)(nil)
	_ op = (*table)(nil)

	errInexact = errors.New("the value cannot be converted so that the reverse gives it again")
)
