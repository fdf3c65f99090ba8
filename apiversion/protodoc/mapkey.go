package protodoc

import (
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// MapKey returns the key of a map that is written so, in canonical form only, so that no two
// texts are one key; false if it is none. fd is the map's key.
func MapKey(s string, fd protoreflect.FieldDescriptor) (protoreflect.MapKey, bool) {
	var v protoreflect.Value
	switch fd.Kind() {
	case protoreflect.StringKind:
		v = protoreflect.ValueOfString(s)
	case protoreflect.BoolKind:
		v = protoreflect.ValueOfBool(s == "true")
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, _ := strconv.ParseInt(s, 10, 32)
		v = protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n, _ := strconv.ParseInt(s, 10, 64)
		v = protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, _ := strconv.ParseUint(s, 10, 32)
		v = protoreflect.ValueOfUint32(uint32(n))
	default:
		n, _ := strconv.ParseUint(s, 10, 64)
		v = protoreflect.ValueOfUint64(n)
	}
	return v.MapKey(), v.MapKey().String() == s
}
