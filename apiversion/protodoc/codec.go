package protodoc

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform/typed"
)

// Codec returns the codec of a message type for package typed. Its pairs and groups can then be
// functions on messages. M must be a generated type.
func Codec[M proto.Message]() typed.Codec[M] { return codec[M]{} }

type codec[M proto.Message] struct{}

func (codec[M]) Decode(doc bson.Raw) (M, error) {
	var none M
	m := none.ProtoReflect().New().Interface().(M) //nolint:forcetypeassert // a message makes its own type
	return m, Unmarshal(doc, m)
}

func (codec[M]) Encode(m M) (bson.Raw, error) { return Marshal(m) }

// Merge keeps the elements that the message type does not know, at every level (typed.Merger).
func (codec[M]) Merge(doc bson.Raw, m M) (bson.Raw, error) { return Merge(doc, m) }

func (codec[M]) Shape() (typed.Shape, error) {
	var none M
	return checkedShape(none.ProtoReflect().Descriptor())
}

// Kinds returns the codec of a message type, for CodecOf of a typed.Group whose kinds are messages.
// It returns false for other types.
func Kinds(t reflect.Type) (typed.KindCodec, bool) {
	// A nil pointer is enough to find the message type.
	m, ok := reflect.Zero(t).Interface().(proto.Message)
	if !ok || t.Kind() != reflect.Pointer {
		return nil, false
	}
	return typed.ForType(t, anyCodec{m.ProtoReflect().Type()}), true
}

// anyCodec is the codec of a message type that is known only at run time.
type anyCodec struct{ t protoreflect.MessageType }

func (c anyCodec) Decode(doc bson.Raw) (any, error) {
	m := c.t.New().Interface()
	return m, Unmarshal(doc, m)
}

func (c anyCodec) Encode(v any) (bson.Raw, error) {
	m, err := c.message(v)
	if err != nil {
		return nil, err
	}
	return Marshal(m)
}

func (c anyCodec) Merge(doc bson.Raw, v any) (bson.Raw, error) {
	m, err := c.message(v)
	if err != nil {
		return nil, err
	}
	return Merge(doc, m)
}

func (c anyCodec) message(v any) (proto.Message, error) {
	m, ok := v.(proto.Message)
	// A nil message would encode as an empty one.
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("it is no %s, or nil", c.t.Descriptor().FullName())
	}
	return m, nil
}

func (c anyCodec) Shape() (typed.Shape, error) { return checkedShape(c.t.Descriptor()) }

// checkedShape returns the shape of a message and an error for ambiguous aliases.
func checkedShape(d protoreflect.MessageDescriptor) (typed.Shape, error) {
	return shapeOf(d, nil), CheckAliases(d)
}

// shapeOf returns the shape of a message's documents. Messages of two versions with the same fields
// have equal shapes. around holds the enclosing messages.
func shapeOf(d protoreflect.MessageDescriptor, around []protoreflect.MessageDescriptor) typed.Shape {
	// A recursive message would have an infinite shape, so its name stands for it.
	if k := wellKnownOf(d); k != none || slices.Contains(around, d) {
		return typed.Shape{Name: string(d.FullName())}
	}
	// The full slice expression prevents sibling fields from sharing the array.
	around = append(around[:len(around):len(around)], d)
	out := typed.Shape{Fields: []typed.ShapeField{}}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		s := typed.Shape{}
		switch {
		case fd.IsMap():
			s.Name = "map of " + valueShape(fd.MapValue(), around).String()
		case fd.IsList():
			s.Name = "[]" + valueShape(fd, around).String()
		default:
			s = valueShape(fd, around)
		}
		out.Fields = append(out.Fields, typed.ShapeField{Name: string(fd.Name()), Shape: s})
	}
	// The order of declaration has no meaning between versions.
	slices.SortFunc(out.Fields, func(a, b typed.ShapeField) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func valueShape(fd protoreflect.FieldDescriptor, around []protoreflect.MessageDescriptor) typed.Shape {
	switch {
	case fd.Message() != nil:
		return shapeOf(fd.Message(), around)
	case fd.Enum() != nil:
		// Documents hold the names, so two enums with the same names are alike.
		var names []string
		for i := range fd.Enum().Values().Len() {
			names = append(names, string(fd.Enum().Values().Get(i).Name()))
		}
		return typed.Shape{Name: "enum " + strings.Join(names, "|")}
	default:
		return typed.Shape{Name: fd.Kind().String()}
	}
}
