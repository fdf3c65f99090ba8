package listing

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// valueType is the type of a field for filters and orders. Its text appears in errors.
type valueType string

const (
	textType  valueType = "a string"
	enumType  valueType = "an enum"
	intType   valueType = "an integer"
	uintType  valueType = "an unsigned integer"
	floatType valueType = "a number"
	boolType  valueType = "a bool"
	bytesType valueType = "bytes"
	timeType  valueType = "a timestamp"
	otherType valueType = "a message"
)

// typeOf returns the type of a field's single values. A wrapper has the type of its value.
func typeOf(fd protoreflect.FieldDescriptor) valueType {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return textType
	case protoreflect.EnumKind:
		return enumType
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return intType
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return uintType
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return floatType
	case protoreflect.BoolKind:
		return boolType
	case protoreflect.BytesKind:
		return bytesType
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch {
		case fd.Message().FullName() == "google.protobuf.Timestamp":
			return timeType
		case isWrapper(fd.Message()):
			return typeOf(fd.Message().Fields().ByNumber(1))
		}
	}
	return otherType
}

// isWrapper reports whether a message is a wrapper such as google.protobuf.StringValue.
func isWrapper(d protoreflect.MessageDescriptor) bool {
	name, ok := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	return ok && name != "Value" && name != "ListValue" && strings.HasSuffix(name, "Value")
}

// ValueOf returns a single value in the Go types of transform.Condition: string, int64, uint64,
// float64, bool, []byte or time.Time. An enum is its name, or its number as text if it has no name.
// ValueOf returns nil for other messages.
func ValueOf(fd protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch typeOf(fd) {
	case textType, boolType, bytesType, intType, uintType, floatType:
		if fd.Message() != nil {
			// Take the descriptor from the message itself: a dynamic message accepts no other.
			only := fd.Message().Fields().ByNumber(1)
			return ValueOf(only, v.Message().Get(v.Message().Descriptor().Fields().ByNumber(1)))
		}
		switch x := v.Interface().(type) {
		case int32:
			return int64(x)
		case uint32:
			return uint64(x)
		case float32:
			return float64(x)
		default:
			return x
		}
	case enumType:
		if named := fd.Enum().Values().ByNumber(v.Enum()); named != nil {
			return string(named.Name())
		}
		// A value that this program does not know has no name.
		return strconv.Itoa(int(v.Enum()))
	case timeType:
		m := v.Message()
		fields := m.Descriptor().Fields()
		return time.Unix(m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()).UTC()
	default:
		return nil
	}
}

// Coerce converts a value to the Go type of a field, as ValueOf returns it. It returns an error if
// the conversion would change the value's meaning.
func Coerce(x any, fd protoreflect.FieldDescriptor) (any, error) {
	t := typeOf(fd)
	mismatch := fmt.Errorf("is %s and cannot be compared with %s", t, describe(x))
	switch t {
	case textType:
		if s, ok := x.(string); ok {
			return s, nil
		}
	case enumType:
		switch x := x.(type) {
		case string:
			if fd.Enum().Values().ByName(protoreflect.Name(x)) == nil {
				// ValueOf returns unnamed values as numbers, so accept them.
				if _, err := strconv.ParseInt(x, 10, 32); err != nil {
					return nil, fmt.Errorf("enum %s has no value %q", fd.Enum().FullName(), x)
				}
			}
			return x, nil
		case int64:
			if x >= math.MinInt32 && x <= math.MaxInt32 {
				return ValueOf(fd, protoreflect.ValueOfEnum(protoreflect.EnumNumber(x))), nil
			}
		}
	case intType:
		switch x := x.(type) {
		case int64:
			return x, nil
		case uint64:
			if x <= math.MaxInt64 {
				return int64(x), nil
			}
		case float64:
			// Beyond 2^53 a double may stand for several integers.
			if x == math.Trunc(x) && math.Abs(x) <= 1<<53 {
				return int64(x), nil
			}
		}
	case uintType:
		switch x := x.(type) {
		case uint64:
			return x, nil
		case int64:
			if x >= 0 {
				return uint64(x), nil
			}
			return nil, fmt.Errorf("is never negative")
		case float64:
			if x == math.Trunc(x) && x >= 0 && x <= 1<<53 {
				return uint64(x), nil
			}
		}
	case floatType:
		switch x := x.(type) {
		case float64:
			return x, nil
		case int64:
			if x >= -1<<53 && x <= 1<<53 {
				return float64(x), nil
			}
		case uint64:
			if x <= 1<<53 {
				return float64(x), nil
			}
		}
	case boolType:
		if b, ok := x.(bool); ok {
			return b, nil
		}
	case bytesType:
		if b, ok := x.([]byte); ok {
			return b, nil
		}
	case timeType:
		switch x := x.(type) {
		case time.Time:
			return x.UTC(), nil
		case string:
			if t, err := time.Parse(time.RFC3339Nano, x); err == nil {
				return t.UTC(), nil
			}
			return nil, fmt.Errorf("is a timestamp, and %q is no time of RFC 3339", x)
		}
	}
	return nil, mismatch
}

func describe(x any) string {
	switch x.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case int64, uint64:
		return "an integer"
	case float64:
		return "a number"
	case bool:
		return "a bool"
	case []byte:
		return "bytes"
	case time.Time:
		return "a timestamp"
	default:
		return fmt.Sprintf("a %T", x)
	}
}

// CompareValues compares two values of one type. nil, an absent value, comes first, and NaN comes
// before all numbers. ok is false if the types differ.
func CompareValues(a, b any) (c int, ok bool) {
	if a == nil || b == nil {
		switch {
		case a == nil && b == nil:
			return 0, true
		case a == nil:
			return -1, true
		}
		return 1, true
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case int64:
		b, ok := b.(int64)
		return cmp.Compare(a, b), ok
	case uint64:
		b, ok := b.(uint64)
		return cmp.Compare(a, b), ok
	case float64:
		b, ok := b.(float64)
		return cmp.Compare(a, b), ok
	case bool:
		b, ok := b.(bool)
		return cmp.Compare(ordinal(a), ordinal(b)), ok
	case []byte:
		b, ok := b.([]byte)
		return bytes.Compare(a, b), ok
	case time.Time:
		b, ok := b.(time.Time)
		return a.Compare(b), ok
	default:
		return 0, false
	}
}

// ordinal sorts false before true.
func ordinal(b bool) int {
	if b {
		return 1
	}
	return 0
}
