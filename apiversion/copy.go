package apiversion

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller/apiversion/listing"
)

// fieldError names the field of a message that cannot be converted.
type fieldError struct{ path, reason string }

func (e *fieldError) Error() string { return e.path + ": " + e.reason }

// copyFields copies what no difference names. Fields are found by name, so that both
// messages may have their own numbers.
func (r *rules) copyFields(dst, src protoreflect.Message, prefix string) (err error) {
	if b := src.GetUnknown(); len(b) > 0 {
		return &fieldError{strings.TrimSuffix(prefix, "."), "has a protobuf field that this program does not know"}
	}
	src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(fd.Name())
		if _, declared := r.byPath[path]; declared {
			return true
		}
		to := dst.Descriptor().Fields().ByName(fd.Name())
		switch {
		case r.below(path) && to == nil:
			// Only declared fields are in there; they are carried by their differences.
		case r.below(path):
			err = r.copyFields(dst.Mutable(to).Message(), v.Message(), path+".")
		default:
			err = copyField(dst, to, fd, v, path)
		}
		return err == nil
	})
	return err
}

// copyPath copies one field to another path.
func (r *rules) copyPath(dst, src protoreflect.Message, to, from string) error {
	m, fd := holder(src, from, false)
	if fd == nil || !m.Has(fd) {
		return nil
	}
	out, ofd := holder(dst, to, true)
	return copyField(out, ofd, fd, m.Get(fd), from)
}

// holder returns the message that holds the last part of a path; nil where it does not
// exist and is not to be made.
func holder(m protoreflect.Message, path string, make bool) (protoreflect.Message, protoreflect.FieldDescriptor) {
	for {
		part, rest, more := strings.Cut(path, ".")
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(part))
		if !more || fd == nil {
			return m, fd
		}
		if !make && !m.Has(fd) {
			return nil, nil
		}
		if make {
			m = m.Mutable(fd).Message()
		} else {
			m = m.Get(fd).Message()
		}
		path = rest
	}
}

// copyField copies the value of a field to one of the same shape in another message.
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

func copyValue(fresh func() protoreflect.Value, to, from protoreflect.FieldDescriptor, v protoreflect.Value, path string) (protoreflect.Value, error) {
	switch {
	case from.Enum() != nil && from.Enum() != to.Enum():
		named := from.Enum().Values().ByNumber(v.Enum())
		if named == nil {
			return v, nil // without a name, the number is all there is
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
	if b := v.Message().GetUnknown(); len(b) > 0 {
		return out, &fieldError{path, "has a protobuf field that this program does not know"}
	}
	v.Message().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		err = copyField(out.Message(), out.Message().Descriptor().Fields().ByName(fd.Name()), fd, v, path+"."+string(fd.Name()))
		return err == nil
	})
	return out, err
}

// read returns the single value at a path, nil where it is not there or zero without
// presence.
func read(m protoreflect.Message, path string) any {
	at, fd := holder(m, path, false)
	if fd == nil || !at.Has(fd) {
		return nil
	}
	if fd.IsList() || fd.IsMap() || listing.IsMessage(fd) {
		return at.Get(fd).Interface()
	}
	return listing.ValueOf(fd, at.Get(fd))
}

// write sets the single value at a path.
func write(m protoreflect.Message, path string, x any) error {
	if x == nil {
		return nil
	}
	at, fd := holder(m, path, true)
	x, err := listing.Coerce(x, fd)
	if err != nil {
		return err
	}
	v, err := protoValue(at, fd, x)
	if err != nil {
		return err
	}
	at.Set(fd, v)
	return nil
}

// protoValue returns a value, in the form that listing.Coerce gives it, as a field has it.
func protoValue(m protoreflect.Message, fd protoreflect.FieldDescriptor, x any) (protoreflect.Value, error) {
	if fd.Message() != nil {
		v := m.NewField(fd)
		fields := v.Message().Descriptor().Fields()
		if t, ok := x.(time.Time); ok {
			v.Message().Set(fields.ByNumber(1), protoreflect.ValueOfInt64(t.Unix()))
			v.Message().Set(fields.ByNumber(2), protoreflect.ValueOfInt32(int32(t.Nanosecond())))
			return v, nil
		}
		inner, err := protoValue(v.Message(), fields.ByNumber(1), x)
		if err == nil {
			v.Message().Set(fields.ByNumber(1), inner)
		}
		return v, err
	}
	switch x := x.(type) {
	case int64:
		switch fd.Kind() {
		case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
			if x < math.MinInt32 || x > math.MaxInt32 {
				return protoreflect.Value{}, fmt.Errorf("the number does not fit %s", fd.FullName())
			}
			return protoreflect.ValueOfInt32(int32(x)), nil
		}
	case uint64:
		switch fd.Kind() {
		case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
			if x > math.MaxUint32 {
				return protoreflect.Value{}, fmt.Errorf("the number does not fit %s", fd.FullName())
			}
			return protoreflect.ValueOfUint32(uint32(x)), nil
		}
	case float64:
		if fd.Kind() == protoreflect.FloatKind {
			return protoreflect.ValueOfFloat32(float32(x)), nil
		}
	case string:
		if fd.Kind() == protoreflect.EnumKind {
			if named := fd.Enum().Values().ByName(protoreflect.Name(x)); named != nil {
				return protoreflect.ValueOfEnum(named.Number()), nil
			}
			n, err := strconv.ParseInt(x, 10, 32)
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), err
		}
	}
	return protoreflect.ValueOf(x), nil
}

// zero is the value of a field that is not set.
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

// set makes a copy of a message's field, of any implementation, in another message.
func set(dst protoreflect.Message, fd protoreflect.FieldDescriptor, msg proto.Message) error {
	m, err := dynamic(msg, fd.Message())
	if err != nil {
		return err
	}
	dst.Set(fd, protoreflect.ValueOfMessage(m))
	return nil
}
