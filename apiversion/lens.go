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

// Lens converts documents of records between two versions. doc is the document to convert, have the
// existing document of the other version or nil. *lens.Lens implements it.
type Lens interface {
	Up(doc, have bson.Raw) (bson.Raw, error)
	Down(doc, have bson.Raw) (bson.Raw, error)
}

var _ Lens = (*lens.Lens)(nil)

// FromLens makes a Resource that converts through a lens. Messages become documents by package
// protodoc, with the record's name as _id. Name fields of the messages follow the mapping of names,
// not the lens. FromLens sets Up and Down of r.
func FromLens(r Resource, l Lens) (*Resource, error) {
	// The converters need the default name fields, which checked fills in. A first pass with
	// placeholders finds them.
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

// byDocument makes the Up converter of a lens. Its errors name fields of Old.
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
			// The existing document has the name of the other version.
			if held, err = document(newName, have); err != nil {
				return nil, err
			}
		}
		if doc, err = turn(doc, held); err != nil {
			// The lens names the field itself. As fieldError it reaches the client with the path.
			if refused := new(lens.RecordError); errors.As(err, &refused) && refused.Field != "" {
				return nil, &fieldError{refused.Field, refused.Reason}
			}
			return nil, err
		}
		out := dynamicpb.NewMessage(r.New)
		if err := protodoc.Unmarshal(doc, out); err != nil {
			return nil, r.ofOld(err)
		}
		// A field that New does not have would be lost. Only the _id may remain, since the name
		// holds it.
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

// document encodes a message. It omits the _id if the service has not named the record yet.
func document(name string, msg proto.Message) (bson.Raw, error) {
	if name == "" {
		return protodoc.Marshal(msg)
	}
	return protodoc.MarshalID(name, msg)
}

// ofOld translates the field in an error about a New document into terms of Old.
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
