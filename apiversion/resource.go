package apiversion

import (
	"errors"
	"fmt"
	"runtime/debug"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/transform"
)

// Converter converts a message of one version into the other version.
//
// have is the existing message of the other version, or nil if there is none or it is unknown. The
// converter takes from it the values that msg cannot express. It must neither keep nor change its
// arguments. It must accept every implementation of the message types, including dynamic messages.
// It may be called concurrently. A *transform.MappingError names the field of msg that the other
// version cannot express.
type Converter func(msg, have proto.Message) (proto.Message, error)

// Resource declares one resource type in two versions. Old and New are roles, not ages: Old is
// the version of the clients, New the version of the handlers.
type Resource struct {
	// Old and New describe the messages of the two versions.
	Old, New protoreflect.MessageDescriptor
	// Up converts from Old to New, Down from New to Old.
	Up, Down Converter
	// UpMapping translates names, fields and values in requests from Old to New. DownMapping
	// translates them back.
	UpMapping, DownMapping transform.Mapping
	// OldName and NewName are the string fields that hold the record's name. Empty means "name", if
	// the message has such a field.
	OldName, NewName protoreflect.Name
	// SameNames means that a record has the same name in both versions. Clients can then compare
	// names by prefix and order, not only by equality.
	SameNames bool
	// References lists fields of Old that hold names of another service's resources, where New
	// holds their names in that service's other version. A filter with either name then finds the
	// same records. Fields that both versions hold alike need no entry.
	References []listing.Reference

	// emptyShown is the Old message of an empty New message. It is nil if the conversion fails.
	emptyShown proto.Message
}

// reverse returns the resource with both versions exchanged. It has no References.
func (r *Resource) reverse() *Resource {
	return &Resource{
		Old: r.New, New: r.Old, Up: r.Down, Down: r.Up, UpMapping: r.DownMapping, DownMapping: r.UpMapping,
		OldName: r.NewName, NewName: r.OldName, SameNames: r.SameNames,
	}
}

// checked returns a copy of the resource with defaults, or an error about a missing or invalid
// part.
func (r *Resource) checked() (*Resource, error) {
	out := *r
	switch {
	case r.Old == nil || r.New == nil:
		return nil, errors.New("resource: both messages must be given")
	case r.Up == nil || r.Down == nil || r.UpMapping == nil || r.DownMapping == nil:
		return nil, fmt.Errorf("resource %s: Up, Down and both mappings must be given", r.Old.FullName())
	}
	// An alias that two fields share would decode a stored value into either of them.
	for _, d := range []protoreflect.MessageDescriptor{r.Old, r.New} {
		if err := protodoc.CheckAliases(d); err != nil {
			return nil, fmt.Errorf("resource %s: %w", d.FullName(), err)
		}
	}
	for _, side := range []struct {
		name *protoreflect.Name
		of   protoreflect.MessageDescriptor
	}{{&out.OldName, r.Old}, {&out.NewName, r.New}} {
		if *side.name == "" {
			if fd := side.of.Fields().ByName("name"); fd != nil && fd.Kind() == protoreflect.StringKind && !fd.IsList() {
				*side.name = "name"
			}
			continue
		}
		if fd := side.of.Fields().ByName(*side.name); fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
			return nil, fmt.Errorf("resource %s: it has no string field %s to be its name", side.of.FullName(), *side.name)
		}
	}
	for _, ref := range r.References {
		if err := ref.Check(r.Old); err != nil {
			return nil, fmt.Errorf("resource %s: References: %w", r.Old.FullName(), err)
		}
	}
	// From here on a panicking converter is an error.
	out.Up, out.Down = guarded(out.Up, out.New), guarded(out.Down, out.Old)
	// Try the conversion of an empty message once: filters on unset fields need its result.
	shown, err := out.Down(dynamicpb.NewMessage(out.New), nil)
	if _, same := out.DownMapping.(*sameFields); err != nil && same {
		// A function may need more than an empty message. Fields that are equal in both versions
		// are unset in both, so an empty Old message is right.
		shown, err = dynamicpb.NewMessage(out.Old), nil
	}
	if out.emptyShown = nil; err == nil {
		out.emptyShown = shown
	}
	return &out, nil
}

// converterError hides the panic value of a converter from clients, since it may contain record
// data. Observers find value and stack as a wrapped *inprocess.PanicError.
type converterError struct {
	to    protoreflect.FullName
	cause error
}

func (e *converterError) Error() string { return fmt.Sprintf("the converter to %s panicked", e.to) }

func (e *converterError) Unwrap() error { return e.cause }

// guarded turns a panic of a converter into an error of the one request. Otherwise the panic would
// end the connection, or the process that makes a table.
func guarded(f Converter, to protoreflect.MessageDescriptor) Converter {
	return func(msg, have proto.Message) (out proto.Message, err error) {
		defer func() {
			if p := recover(); p != nil {
				out, err = nil, connect.NewError(connect.CodeInternal, &converterError{to.FullName(), &inprocess.PanicError{Value: p, Stack: debug.Stack()}})
			}
		}()
		return f(msg, have)
	}
}

func nameOf(m protoreflect.Message, field protoreflect.Name) string {
	if field == "" {
		return ""
	}
	return m.Get(m.Descriptor().Fields().ByName(field)).String()
}
