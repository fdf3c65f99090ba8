package edit

import (
	"bytes"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TypeName returns the name of a BSON type as lenses and messages write it, such as "int" or
// "object".
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

// Show formats a value for an error, and truncates it after 80 bytes. Before the engine stores the
// error, transform.Conceal removes the value, unless the operator allows values to be shown.
func Show(t bson.Type, val []byte) string {
	const most = 80
	s := bson.RawValue{Type: t, Value: val}.String()
	// Cutting at a byte may split a character. ToValidUTF8 drops the rest of it.
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// SameValue reports whether two values have the same type and bytes.
func SameValue(a, b bson.RawValue) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// ShowValue formats a value with its type for an error. The zero value is "absent".
func ShowValue(v bson.RawValue) string {
	if v.Type == 0 {
		return "absent"
	}
	return fmt.Sprintf("%s (%s)", Show(v.Type, v.Value), TypeName(v.Type))
}

// SameFields reports whether two values are equal if the order of fields is ignored at every depth.
// The order of list items counts.
func SameFields(a, b bson.RawValue) bool {
	if a.Type != b.Type || !HasItems(a.Type) {
		return SameValue(a, b)
	}
	if bytes.Equal(a.Value, b.Value) {
		return true
	}
	if len(a.Value) != len(b.Value) {
		return false
	}
	xs, errX := bson.Raw(a.Value).Elements()
	ys, errY := bson.Raw(b.Value).Elements()
	if errX != nil || errY != nil || len(xs) != len(ys) {
		return false
	}
	there := make(map[string]bson.RawValue, len(ys))
	for i, y := range ys {
		if a.Type == bson.TypeArray && xs[i].Key() != y.Key() {
			return false
		}
		there[y.Key()] = y.Value()
	}
	if len(there) != len(ys) {
		return false // a name is there twice
	}
	for _, x := range xs {
		y, ok := there[x.Key()]
		if !ok || !SameFields(x.Value(), y) {
			return false
		}
		delete(there, x.Key())
	}
	return true
}

// ValueKey returns a text that two values share only if they are the same (SameValue). It serves as
// a key of Go maps.
func ValueKey(v bson.RawValue) string { return string(append([]byte{byte(v.Type)}, v.Value...)) }
