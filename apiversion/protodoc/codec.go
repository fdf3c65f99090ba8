package protodoc

import (
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform/typed"
)

// Kinds returns the codec of a message type, for CodecOf of a typed.Group whose kinds are messages.
// It returns nil for other types.
func Kinds(t reflect.Type) typed.Codec {
	// A nil pointer is enough to find the message type.
	m, ok := reflect.Zero(t).Interface().(proto.Message)
	if !ok || t.Kind() != reflect.Pointer {
		return nil
	}
	return codec{m.ProtoReflect().Type()}
}

// codec is the codec of a message type.
type codec struct{ t protoreflect.MessageType }

func (c codec) Decode(doc bson.Raw) (any, error) {
	m := c.t.New().Interface()
	return m, Unmarshal(doc, m)
}

func (c codec) Encode(v any) (bson.Raw, error) {
	m, err := c.message(v)
	if err != nil {
		return nil, err
	}
	return Marshal(m)
}

// Merge keeps the elements that the message type does not know, at every level (typed.Merger).
func (c codec) Merge(doc bson.Raw, v any) (bson.Raw, error) {
	m, err := c.message(v)
	if err != nil {
		return nil, err
	}
	return Merge(doc, m)
}

func (c codec) message(v any) (proto.Message, error) {
	m, ok := v.(proto.Message)
	// A nil message would encode as an empty one.
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("it is no %s, or nil", c.t.Descriptor().FullName())
	}
	return m, nil
}

// Fields fails for aliases that are ambiguous.
func (c codec) Fields() ([]string, error) {
	d := c.t.Descriptor()
	var out []string
	for i := range d.Fields().Len() {
		out = append(out, string(d.Fields().Get(i).Name()))
	}
	return out, CheckAliases(d)
}
