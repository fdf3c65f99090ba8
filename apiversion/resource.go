package apiversion

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller/apiversion/protodoc"
	"dbcontroller/internal/inprocess"
	"dbcontroller/transform"
	"dbcontroller/transform/lens"
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

	// emptyShown is what Old shows of an empty New message, nil if that cannot be shown.
	emptyShown proto.Message
}

var _ Lens = (*lens.Lens)(nil)

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
	if up, ok := out.UpMapping.(*rules); ok {
		up.nameIs(out.OldName, out.NewName)
	}
	down, declared := out.DownMapping.(*rules)
	if declared {
		down.nameIs(out.NewName, out.OldName)
	}
	out.Up, out.Down = guarded(out.Up, out.New), guarded(out.Down, out.Old)
	shown, err := out.Down(dynamicpb.NewMessage(out.New), nil)
	if err != nil && declared {
		// A function may well need more than nothing. What it does with fields that are not
		// set, the differences say as well.
		shown, err = down.convert(dynamicpb.NewMessage(out.New), nil)
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

// Lens turns the documents of records both ways; *lens.Lens is one.
type Lens interface {
	Up(doc, have bson.Raw) (bson.Raw, error)
	Down(doc, have bson.Raw) (bson.Raw, error)
}

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
		doc, err := protodoc.MarshalID(name, msg)
		if err != nil {
			return nil, err
		}
		var held bson.Raw
		if have != nil {
			if held, err = protodoc.MarshalID(newName, have); err != nil {
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

func nameOf(m protoreflect.Message, field protoreflect.Name) string {
	if field == "" {
		return ""
	}
	return m.Get(m.Descriptor().Fields().ByName(field)).String()
}

// Typed makes a resource of a pair of functions on generated messages. have is nil where
// nothing is known to exist. Requests are mapped by the differences; fields of the same
// path and type need none.
func Typed[O, N proto.Message](up func(old O, have N) (N, error), down func(now N, have O) (O, error), differences ...Difference) (*Resource, error) {
	var o O
	var n N
	r, err := Declare(o.ProtoReflect().Descriptor(), n.ProtoReflect().Descriptor(), differences...)
	if err != nil {
		return nil, err
	}
	r.Up, r.Down = typed(up), typed(down)
	return r, nil
}

func typed[A, B proto.Message](f func(A, B) (B, error)) Converter {
	return func(msg, have proto.Message) (proto.Message, error) {
		a, err := as[A](msg)
		if err != nil {
			return nil, err
		}
		var b B
		if have != nil {
			if b, err = as[B](have); err != nil {
				return nil, err
			}
		}
		return f(a, b)
	}
}

// as returns a message as a generated type.
func as[T proto.Message](msg proto.Message) (T, error) {
	if t, ok := msg.(T); ok {
		return t, nil
	}
	var none T
	out := none.ProtoReflect().New().Interface()
	return out.(T), recast(out, msg)
}

// recast sets dst to what src, another implementation of the same message, holds.
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

// dynamic returns a message as one that the handler's own messages can hold.
func dynamic(msg proto.Message, d protoreflect.MessageDescriptor) (*dynamicpb.Message, error) {
	if m, ok := msg.(*dynamicpb.Message); ok && m.Descriptor() == d {
		return m, nil
	}
	out := dynamicpb.NewMessage(d)
	return out, recast(out, msg)
}
