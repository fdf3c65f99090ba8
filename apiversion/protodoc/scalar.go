package protodoc

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func wrongType(v bsoncore.Value, want string) error {
	return failf("is of type %s, not %s", v.Type, want)
}

// decodeScalar reads a value that is not a message.
func decodeScalar(v bsoncore.Value, fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		b, ok := v.BooleanOK()
		if !ok {
			return protoreflect.Value{}, wrongType(v, "a bool")
		}
		return protoreflect.ValueOfBool(b), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, err := integer(v)
		if err == nil && (n < math.MinInt32 || n > math.MaxInt32) {
			err = errRange
		}
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n, err := integer(v)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, err := integer(v)
		if err == nil && (n < 0 || n > math.MaxUint32) {
			err = errRange
		}
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n, err := unsigned(v)
		return protoreflect.ValueOfUint64(n), err
	case protoreflect.FloatKind:
		f, err := float(v)
		// A float is stored as a double. Only a finite value that overflows is an error.
		narrow := float32(f)
		if err == nil && math.IsInf(float64(narrow), 0) && !math.IsInf(f, 0) {
			err = errRange
		}
		return protoreflect.ValueOfFloat32(narrow), err
	case protoreflect.DoubleKind:
		f, err := float(v)
		return protoreflect.ValueOfFloat64(f), err
	case protoreflect.StringKind:
		s, ok := v.StringValueOK()
		if !ok {
			return protoreflect.Value{}, wrongType(v, "a string")
		}
		if !utf8.ValidString(s) {
			return protoreflect.Value{}, errUTF8
		}
		return protoreflect.ValueOfString(s), nil
	case protoreflect.BytesKind:
		_, b, ok := v.BinaryOK()
		if !ok {
			return protoreflect.Value{}, wrongType(v, "binary")
		}
		// doc belongs to the caller, so the message needs its own bytes.
		return protoreflect.ValueOfBytes(bytes.Clone(b)), nil
	case protoreflect.EnumKind:
		return decodeEnum(v, fd.Enum())
	default:
		return protoreflect.Value{}, failf("kind %s is not supported", fd.Kind())
	}
}

// decodeEnum reads an enum by name, alias or number.
func decodeEnum(v bsoncore.Value, d protoreflect.EnumDescriptor) (protoreflect.Value, error) {
	if name, ok := v.StringValueOK(); ok {
		named := valueNamed(d, name)
		// Unlike a number, an unknown name cannot be kept in the message.
		if named == nil {
			return protoreflect.Value{}, failf("the name is not one of enum %s", d.FullName())
		}
		return protoreflect.ValueOfEnum(named.Number()), nil
	}
	n, err := integer(v)
	switch {
	case err != nil:
		return protoreflect.Value{}, wrongType(v, "the name of an enum value")
	case n < math.MinInt32 || n > math.MaxInt32:
		return protoreflect.Value{}, errRange
	}
	return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), nil
}

var errRange = failf("the number is out of the field's range")

// integer reads a number of any BSON type that is a whole number of 64 bits.
func integer(v bsoncore.Value) (int64, error) {
	switch v.Type {
	case bsoncore.TypeInt32:
		return int64(v.Int32()), nil
	case bsoncore.TypeInt64:
		return v.Int64(), nil
	case bsoncore.TypeDouble:
		f := v.Double()
		// 2^63 is the first double beyond the range. math.MaxInt64 would round up to it.
		if f != math.Trunc(f) || f < math.MinInt64 || f >= 1<<63 {
			return 0, failf("the number is not a whole one of 64 bits")
		}
		return int64(f), nil
	default:
		return 0, wrongType(v, "an integer")
	}
}

// unsigned reads a non-negative integer, also above int64.
func unsigned(v bsoncore.Value) (uint64, error) {
	if high, low, ok := v.Decimal128OK(); ok {
		// Other decimals may be equal in value, but appendUint never writes them.
		if high != decimalZero {
			return 0, failf("the decimal is not a plain integer below 2^64")
		}
		return low, nil
	}
	n, err := integer(v)
	// integer accepts negative numbers of any BSON type.
	if err == nil && n < 0 {
		err = errRange
	}
	return uint64(n), err
}

// float reads a number that a double represents exactly.
func float(v bsoncore.Value) (float64, error) {
	if f, ok := v.DoubleOK(); ok {
		return f, nil
	}
	n, err := integer(v)
	if err != nil {
		return 0, wrongType(v, "a number")
	}
	// Above 2^53 a double does not represent every integer.
	const exact = 1 << 53
	if n < -exact || n > exact {
		return 0, failf("the integer is too large to be exact as a double")
	}
	return float64(n), nil
}

// MapKey parses the name of a map entry as a key. It accepts only the canonical form, so that two
// names never mean one key. fd is the map's key field. ok is false if the name is not a key.
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
	// The printed key differs from s after a parse error, and for any other way to write the key.
	return v.MapKey(), v.MapKey().String() == s
}
