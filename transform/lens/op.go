package lens

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// op is one operation in one direction. Every op has an inverse. The reverse of a lens is the
// inverses in reverse order.
//
// trace defines how an op changes requests. An op that can do more is also a comparer, a spreader
// or a sorter (mapping.go). An op that keeps fields which only the far side has is a holder
// (program.go).
type op interface {
	// String returns the operation and its fields as the lens writes them, for errors.
	String() string
	apply(e *editor, root *node) error
	inverse() op
	// trace returns the path on the far side of a path on the near side.
	trace(p path) (path, fate)
	// takes returns the paths that only the near side has, makes the paths that only the far side
	// has.
	takes() []path
	makes() []path
	// changes returns the paths whose values change, each treated as one value.
	changes() []path
}

// fate is the effect of an operation on a path.
type fate int

const (
	kept      fate = iota // the same values, perhaps under another path
	converted             // still there, with other values
	covers                // fields within it change or move elsewhere
	spread                // its value is made into values at other paths
	gone                  // the far side does not have it
	clashes               // the near side cannot have it
)

// TypeName returns the name of a type in lenses and messages.
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

// show formats a value for an error and truncates a long one. transform.Conceal removes the value
// again before the error is stored, unless the operator allows it.
func show(t bson.Type, val []byte) string {
	const most = 80
	s := bson.RawValue{Type: t, Value: val}.String()
	// Cutting at a byte may split a character. ToValidUTF8 drops the rest of it.
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
