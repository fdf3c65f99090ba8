package prototest

import (
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// maxNesting limits the nesting of generated messages, so that recursive types end.
const maxNesting = 3

// Draw fills msg with random values. msg must be empty.
func Draw(t *rapid.T, msg proto.Message) { draw(t, msg.ProtoReflect(), 0) }

func draw(t *rapid.T, m protoreflect.Message, depth int) {
	switch m.Descriptor().FullName() {
	// Only values that protodoc accepts. The fixed nanos make whole milliseconds frequent.
	case "google.protobuf.Timestamp":
		set(m, "seconds", protoreflect.ValueOfInt64(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds")))
		nanos := rapid.OneOf(rapid.Just(int32(0)), rapid.Just(int32(5_000_000)), rapid.Int32Range(0, 999_999_999)).Draw(t, "nanos")
		set(m, "nanos", protoreflect.ValueOfInt32(nanos))
		return
	case "google.protobuf.Duration":
		seconds := rapid.Int64Range(-315576000000, 315576000000).Draw(t, "seconds")
		nanos := rapid.OneOf(rapid.Just(int32(0)), rapid.Just(int32(5_000_000)), rapid.Int32Range(0, 999_999_999)).Draw(t, "nanos")
		// Protobuf requires the same sign for both parts.
		if seconds < 0 {
			nanos = -nanos
		}
		set(m, "seconds", protoreflect.ValueOfInt64(seconds))
		set(m, "nanos", protoreflect.ValueOfInt32(nanos))
		return
	// A Value must have exactly one field set.
	case "google.protobuf.Value":
		fields := m.Descriptor().Fields()
		highest := 6
		if depth >= maxNesting {
			// 5 and 6 are Struct and ListValue, which would nest deeper.
			highest = 4
		}
		fd := fields.ByNumber(protoreflect.FieldNumber(rapid.IntRange(1, highest).Draw(t, "kind")))
		drawField(t, m, fd, depth)
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		// Most fields stay unset, so that absence is tested often.
		if rapid.IntRange(0, 2).Draw(t, string(fd.Name())+" set") == 0 {
			drawField(t, m, fd, depth)
		}
	}
}

func set(m protoreflect.Message, name protoreflect.Name, v protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(name), v)
}

func drawField(t *rapid.T, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	single := func(fd protoreflect.FieldDescriptor, fresh func() protoreflect.Value) protoreflect.Value {
		if fd.Message() == nil {
			return Scalar(t, fd)
		}
		v := fresh()
		draw(t, v.Message(), depth+1)
		return v
	}
	// Leave the field unset: that is valid for every message field.
	if depth >= maxNesting && fd.Message() != nil {
		return
	}
	switch {
	case fd.IsList():
		l := m.Mutable(fd).List()
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			l.Append(single(fd, l.NewElement))
		}
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range rapid.IntRange(0, 3).Draw(t, "size") {
			k := Scalar(t, fd.MapKey()).MapKey()
			entries.Set(k, single(fd.MapValue(), entries.NewValue))
		}
	default:
		m.Set(fd, single(fd, func() protoreflect.Value { return m.NewField(fd) }))
	}
}

// text draws from a few values, so that comparisons often match. Some of the values are hard to
// quote or to split.
var text = rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "ab", "abc", "a b", "a.b", "b/c", "ü", "\"q\"\\", "10", "9"}), rapid.StringN(0, 5, 20).Filter(noNUL))

// noNUL rejects NUL, which BSON does not allow in a map key.
func noNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return true
}

// Scalar draws a value for a field that is not a message. Small values are frequent, so that two of
// them are often equal.
func Scalar(t *rapid.T, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(rapid.OneOf(rapid.Int32Range(-2, 3), rapid.Int32()).Draw(t, "int32"))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(rapid.OneOf(rapid.Int64Range(-2, 3), rapid.Int64()).Draw(t, "int64"))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32()).Draw(t, "uint32"))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64(), rapid.Just(uint64(math.MaxUint64))).Draw(t, "uint64"))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(rapid.OneOf(rapid.SampledFrom([]float32{0, 1, -1.5}), rapid.Float32()).Draw(t, "float"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1.5}), rapid.Float64()).Draw(t, "double"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text.Draw(t, "text"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "bytes"))
	case protoreflect.EnumKind:
		// This enum has one value only.
		if fd.Enum().FullName() == "google.protobuf.NullValue" {
			return protoreflect.ValueOfEnum(0)
		}
		// Some of these numbers have no name.
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(0, 4).Draw(t, "enum")))
	default:
		panic("no scalar: " + fd.FullName())
	}
}
