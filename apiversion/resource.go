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
	"dbcontroller.dev/internal/inprocess"
	"dbcontroller.dev/transform"
)

// Converter turns a message of one version into that of the other. have is what exists
// in the other version, nil where that is nothing or not known; what the source cannot
// express is taken from it. A converter neither keeps nor changes its arguments, and
// takes messages of any implementation.
type Converter func(msg, have proto.Message) (proto.Message, error)

// Resource is one resource type in two versions. Old and New are roles, not ages:
// Reverse exchanges them.
type Resource struct {
	Old, New protoreflect.MessageDescriptor
	Up, Down Converter
	// UpMapping turns requests in terms of Old into terms of New, DownMapping back.
	UpMapping, DownMapping transform.Mapping
	// OldName and NewName are the string fields that hold the name of the record. Empty:
	// "name", if there is one.
	OldName, NewName protoreflect.Name
	// SameNames means that a record has the same name in both versions, so that names can
	// be compared by more than equality.
	SameNames bool
	// References are the fields of Old that hold names of another service's resources, of which
	// New holds those of that service's other version: filters with either name find the same.
	// References that both versions hold alike need nothing here. Reverse has none.
	References []listing.Reference

	// emptyShown is what Old shows of an empty New message, nil if that cannot be shown.
	emptyShown proto.Message
}

// Reverse returns the resource with the versions exchanged.
func (r *Resource) Reverse() *Resource {
	return &Resource{
		Old: r.New, New: r.Old, Up: r.Down, Down: r.Up, UpMapping: r.DownMapping, DownMapping: r.UpMapping,
		OldName: r.NewName, NewName: r.OldName, SameNames: r.SameNames,
	}
}

// checked returns the resource with its defaults, or what is missing.
func (r *Resource) checked() (*Resource, error) {
	out := *r
	switch {
	case r.Old == nil || r.New == nil:
		return nil, errors.New("resource: both messages must be given")
	case r.Up == nil || r.Down == nil || r.UpMapping == nil || r.DownMapping == nil:
		return nil, fmt.Errorf("resource %s: Up, Down and both mappings must be given", r.Old.FullName())
	}
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
	out.Up, out.Down = guarded(out.Up, out.New), guarded(out.Down, out.Old)
	shown, err := out.Down(dynamicpb.NewMessage(out.New), nil)
	if _, same := out.DownMapping.(*sameFields); err != nil && same {
		// A function may well need more than nothing. Fields that are the same are not set
		// in either version.
		shown, err = dynamicpb.NewMessage(out.Old), nil
	}
	if out.emptyShown = nil; err == nil {
		out.emptyShown = shown
	}
	return &out, nil
}

// converterError is returned to clients without what the converter panicked with, which may
// be of a record. Observers find that, and the stack, as an *inprocess.PanicError in it.
type converterError struct {
	to    protoreflect.FullName
	cause error
}

func (e *converterError) Error() string { return fmt.Sprintf("the converter to %s panicked", e.to) }

func (e *converterError) Unwrap() error { return e.cause }

// guarded is a converter whose panic is an error of the one request, not the end of its
// connection, or of the process that makes a table.
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
