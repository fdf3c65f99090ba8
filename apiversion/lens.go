package apiversion

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/transform/lens"
)

// Lens turns the documents of records both ways; *lens.Lens is one.
type Lens interface {
	Up(doc, have bson.Raw) (bson.Raw, error)
	Down(doc, have bson.Raw) (bson.Raw, error)
}

var _ Lens = (*lens.Lens)(nil)

// FromLens makes a resource of a lens on its records' documents, which are what protodoc
// makes of the messages, with the record's name as _id. The fields that hold the name, if
// the messages have some, follow the mapping of names.
func FromLens(r Resource, l Lens) (*Resource, error) {
	later := func(proto.Message, proto.Message) (proto.Message, error) { return nil, errors.New("not yet") }
	r.Up, r.Down = later, later
	named, err := r.checked()
	if err != nil {
		return nil, err
	}
	named.Up = byDocument(l.Up, named)
	named.Down = byDocument(l.Down, named.Reverse())
	return named.checked()
}

// byDocument makes the way up of a lens. Its errors are in terms of Old.
func byDocument(turn func(doc, have bson.Raw) (bson.Raw, error), r *Resource) Converter {
	return func(msg, have proto.Message) (proto.Message, error) {
		name := nameOf(msg.ProtoReflect(), r.OldName)
		newName, err := r.Name(name)
		if err != nil {
			return nil, err
		}
		doc, err := document(name, msg)
		if err != nil {
			return nil, err
		}
		var held bson.Raw
		if have != nil {
			if held, err = document(newName, have); err != nil {
				return nil, err
			}
		}
		if doc, err = turn(doc, held); err != nil {
			if refused := new(lens.RecordError); errors.As(err, &refused) && refused.Field != "" {
				return nil, &fieldError{refused.Field, refused.Reason}
			}
			return nil, err
		}
		out := dynamicpb.NewMessage(r.New)
		if err := protodoc.Unmarshal(doc, out); err != nil {
			return nil, r.ofOld(err)
		}
		// The _id is the record's own; anything else is a value that would be lost.
		for _, path := range protodoc.Unknown(doc, r.New) {
			if path != "_id" {
				return nil, r.ofOld(&protodoc.Error{Path: path, Reason: "is no field of " + string(r.New.FullName())})
			}
		}
		if r.NewName != "" {
			out.Set(r.New.Fields().ByName(r.NewName), protoreflect.ValueOfString(newName))
		}
		return out, nil
	}
}

// document is the document of a message. One whose record the service is yet to name has
// no _id.
func document(name string, msg proto.Message) (bson.Raw, error) {
	if name == "" {
		return protodoc.Marshal(msg)
	}
	return protodoc.MarshalID(name, msg)
}

// ofOld names the field of an error about a New document as Old has it.
func (r *Resource) ofOld(err error) error {
	e := new(protodoc.Error)
	if !errors.As(err, &e) || e.Path == "" {
		return err
	}
	if paths, mapErr := r.DownMapping.Field(e.Path); mapErr == nil {
		return &fieldError{strings.Join(paths, ", "), e.Reason}
	}
	return err
}
