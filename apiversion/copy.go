package apiversion

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
)

// fieldError reports a message field that cannot be converted.
type fieldError struct{ path, reason string }

func (e *fieldError) Error() string { return e.path + ": " + e.reason }

// copyField copies a field's value into a field of the same shape in another message. path names
// the field in errors.
func copyField(dst protoreflect.Message, to, from protoreflect.FieldDescriptor, v protoreflect.Value, path string) error {
	if to == nil || to.Kind() != from.Kind() || to.Cardinality() != from.Cardinality() || to.IsMap() != from.IsMap() {
		return &fieldError{path, fmt.Sprintf("has no counterpart in %s", dst.Descriptor().FullName())}
	}
	var err error
	switch {
	case to.IsList():
		l := dst.Mutable(to).List()
		for i := 0; i < v.List().Len() && err == nil; i++ {
			var item protoreflect.Value
			if item, err = copyValue(l.NewElement, to, from, v.List().Get(i), path); err == nil {
				l.Append(item)
			}
		}
	case to.IsMap():
		m := dst.Mutable(to).Map()
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			var item protoreflect.Value
			if item, err = copyValue(m.NewValue, to.MapValue(), from.MapValue(), v, path+"."+k.String()); err == nil {
				m.Set(k, item)
			}
			return err == nil
		})
	default:
		var value protoreflect.Value
		if value, err = copyValue(func() protoreflect.Value { return dst.NewField(to) }, to, from, v, path); err == nil {
			dst.Set(to, value)
		}
	}
	return err
}

// copyValue converts one list item, map value or single value. fresh makes an empty target message.
func copyValue(fresh func() protoreflect.Value, to, from protoreflect.FieldDescriptor, v protoreflect.Value, path string) (protoreflect.Value, error) {
	switch {
	case from.Enum() != nil && from.Enum() != to.Enum():
		// Two versions may number the same value differently, so names decide.
		named := from.Enum().Values().ByNumber(v.Enum())
		if named == nil {
			return v, nil // no name: copy the number
		}
		other := to.Enum().Values().ByName(named.Name())
		if other == nil {
			return v, &fieldError{path, fmt.Sprintf("the value %s is not one of %s", named.Name(), to.Enum().FullName())}
		}
		return protoreflect.ValueOfEnum(other.Number()), nil
	case from.Message() == nil:
		return v, nil
	}
	out := fresh()
	var err error
	// The target has no descriptor for unknown fields, and copying their bytes could set another
	// field.
	if b := v.Message().GetUnknown(); len(b) > 0 {
		return out, &fieldError{path, "has a protobuf field that this program does not know"}
	}
	v.Message().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		err = copyField(out.Message(), out.Message().Descriptor().Fields().ByName(fd.Name()), fd, v, path+"."+string(fd.Name()))
		return err == nil
	})
	return out, err
}

// wide and narrow list the integer kinds of 64 and of 32 bits.
var (
	wide   = []protoreflect.Kind{protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind}
	narrow = []protoreflect.Kind{protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind}
)

// isNumber reports whether a field is a single integer.
func isNumber(fd protoreflect.FieldDescriptor) bool {
	return !fd.IsList() && (slices.Contains(wide, fd.Kind()) || slices.Contains(narrow, fd.Kind()))
}

// setNumber copies an integer into a field that may have another integer kind. It fails if the
// target cannot hold the number.
func setNumber(m protoreflect.Message, to, from protoreflect.FieldDescriptor, v protoreflect.Value) error {
	x, err := listing.Coerce(listing.ValueOf(from, v), to)
	if err != nil {
		return err
	}
	// Coerce checks only signedness: a 64-bit value must also survive the conversion to 32 bits.
	out, fits := protoreflect.ValueOf(x), true
	if slices.Contains(narrow, to.Kind()) {
		switch n := x.(type) {
		case int64:
			out, fits = protoreflect.ValueOfInt32(int32(n)), int64(int32(n)) == n
		case uint64:
			out, fits = protoreflect.ValueOfUint32(uint32(n)), uint64(uint32(n)) == n
		}
	}
	if !fits {
		return fmt.Errorf("the number does not fit %s", to.FullName())
	}
	m.Set(to, out)
	return nil
}

// zero returns the value of an unset field: nil for a message, otherwise its default.
func zero(fd protoreflect.FieldDescriptor) any {
	if fd.Message() != nil {
		return nil
	}
	return listing.ValueOf(fd, fd.Default())
}

func equalValues(a, b any) bool {
	c, ok := listing.CompareValues(a, b)
	return ok && c == 0
}

// set copies a message of any implementation into a message field of dst.
func set(dst protoreflect.Message, fd protoreflect.FieldDescriptor, msg proto.Message) error {
	m, err := dynamic(msg, fd.Message())
	if err != nil {
		return err
	}
	dst.Set(fd, protoreflect.ValueOfMessage(m))
	return nil
}

// recast copies src into dst, another implementation of the same message type.
func recast(dst, src proto.Message) error {
	if from, to := src.ProtoReflect().Descriptor().FullName(), dst.ProtoReflect().Descriptor().FullName(); from != to {
		return fmt.Errorf("a %s was made where a %s is wanted", from, to)
	}
	b, err := proto.Marshal(src)
	if err != nil {
		return fmt.Errorf("recast: %w", err)
	}
	if err := proto.Unmarshal(b, dst); err != nil {
		return fmt.Errorf("recast: %w", err)
	}
	return nil
}

// dynamic returns msg as a dynamic message with descriptor d. It copies msg only if it has to.
func dynamic(msg proto.Message, d protoreflect.MessageDescriptor) (*dynamicpb.Message, error) {
	// Fields can only be read through the descriptor that the message was made with.
	if m, ok := msg.(*dynamicpb.Message); ok && m.Descriptor() == d {
		return m, nil
	}
	out := dynamicpb.NewMessage(d)
	return out, recast(out, msg)
}
