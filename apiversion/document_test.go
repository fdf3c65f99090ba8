package apiversion_test

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// turning converts a document; a lens has two of these.
type turning func(doc, have bson.Raw) (bson.Raw, error)

// byDocuments makes a resource whose functions go through documents. A lens is the shortest way to
// write both of them.
func byDocuments(r apiversion.Resource, up, down turning) (*apiversion.Resource, error) {
	if r.OldName == "" {
		r.OldName = nameField(r.Old)
	}
	if r.NewName == "" {
		r.NewName = nameField(r.New)
	}
	r.Up = byDocument(up, r.UpMapping, r.OldName, r.New, r.NewName)
	r.Down = byDocument(down, r.DownMapping, r.NewName, r.Old, r.OldName)
	return apiversion.Checked(r)
}

func byDocument(turn turning, names transform.Mapping, name protoreflect.Name, to protoreflect.MessageDescriptor, toName protoreflect.Name) apiversion.Converter {
	return func(msg, have proto.Message) (proto.Message, error) {
		id, newID := "", ""
		if name != "" {
			id = get(msg.ProtoReflect(), string(name)).String()
		}
		var err error
		// A resource that is created may have no name yet.
		if id != "" {
			if newID, err = names.Name(id); err != nil {
				return nil, err
			}
		}
		doc, err := documentOf(id, msg)
		if err != nil {
			return nil, err
		}
		var held bson.Raw
		if have != nil {
			if held, err = documentOf(newID, have); err != nil {
				return nil, err
			}
		}
		if doc, err = turn(doc, held); err != nil {
			if refused := new(lens.RecordError); errors.As(err, &refused) && refused.Field != "" {
				return nil, &transform.MappingError{Field: refused.Field, Reason: refused.Reason}
			}
			return nil, err
		}
		out := dynamicpb.NewMessage(to)
		if err := protodoc.Unmarshal(doc, out); err != nil {
			return nil, err
		}
		if toName != "" {
			put(out, string(toName), newID)
		}
		return out, nil
	}
}

func documentOf(name string, msg proto.Message) (bson.Raw, error) {
	if name == "" {
		return protodoc.Marshal(msg)
	}
	return protodoc.MarshalID(name, msg)
}

func nameField(d protoreflect.MessageDescriptor) protoreflect.Name {
	if fd := d.Fields().ByName("name"); fd != nil && fd.Kind() == protoreflect.StringKind {
		return "name"
	}
	return ""
}
