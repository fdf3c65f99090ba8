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

// Codec is that of a message for package typed, whose pairs and groups are then functions of
// the messages themselves. M is a generated type.
func Codec[M proto.Message]() typed.Codec[M] { return codec[M]{} }

type codec[M proto.Message] struct{}

func (codec[M]) Decode(doc bson.Raw) (M, error) {
	var none M
	m := none.ProtoReflect().New().Interface().(M) //nolint:forcetypeassert // a message makes its own type
	return m, Unmarshal(doc, m)
}

func (codec[M]) Encode(m M) (bson.Raw, error) { return Marshal(m) }

// Merge keeps what the document holds beyond the message, at every level (typed.Merger).
func (codec[M]) Merge(doc bson.Raw, m M) (bson.Raw, error) { return Merge(doc, m) }

func (codec[M]) Shape() (typed.Shape, error) {
	var none M
	return checkedShape(none.ProtoReflect().Descriptor())
}

// Kinds are the codecs of a typed.Group whose kinds are messages: it is its CodecOf. Other
// types have none.
func Kinds(t reflect.Type) (typed.KindCodec, bool) {
	m, ok := reflect.Zero(t).Interface().(proto.Message)
	if !ok || t.Kind() != reflect.Pointer {
		return nil, false
	}
	return typed.ForType(t, anyCodec{m.ProtoReflect().Type()}), true
}

// anyCodec is the codec of a message that is known by its type alone.
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
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("it is no %s, or nil", c.t.Descriptor().FullName())
	}
	return m, nil
}

func (c anyCodec) Shape() (typed.Shape, error) { return checkedShape(c.t.Descriptor()) }

func checkedShape(d protoreflect.MessageDescriptor) (typed.Shape, error) {
	return shapeOf(d, nil), CheckAliases(d)
}

// shapeOf is what the documents of a message look like. Messages of two versions that have
// the same fields have equal shapes.
func shapeOf(d protoreflect.MessageDescriptor, around []protoreflect.MessageDescriptor) typed.Shape {
	if k := wellKnownOf(d); k != none || slices.Contains(around, d) {
		return typed.Shape{Name: string(d.FullName())}
	}
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
	slices.SortFunc(out.Fields, func(a, b typed.ShapeField) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func valueShape(fd protoreflect.FieldDescriptor, around []protoreflect.MessageDescriptor) typed.Shape {
	switch {
	case fd.Message() != nil:
		return shapeOf(fd.Message(), around)
	case fd.Enum() != nil:
		// Stored by name: enums of the same names are alike.
		var names []string
		for i := range fd.Enum().Values().Len() {
			names = append(names, string(fd.Enum().Values().Get(i).Name()))
		}
		return typed.Shape{Name: "enum " + strings.Join(names, "|")}
	default:
		return typed.Shape{Name: fd.Kind().String()}
	}
}
