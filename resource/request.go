package resource

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
)

// request is a request with the roles of its fields.
type request struct {
	msg   protoreflect.Message
	roles apiversion.Roles
}

func (t *Table[M]) request(req proto.Message) request {
	m := req.ProtoReflect()
	return request{m, apiversion.RequestRoles(m.Descriptor(), t.message, t.name.Name())}
}

// lacks is the error of a method whose request has no field of a role: of the program, not
// of its client.
func (r request) lacks(what string) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%s has no field for %s", r.msg.Descriptor().FullName(), what))
}

func (r request) text(field string) string { return listing.Text(r.msg, protoreflect.Name(field)) }

func (r request) mask(field string) *fieldmaskpb.FieldMask {
	return listing.Mask(r.msg, protoreflect.Name(field))
}

// find returns the value of a field by its name, if it is set.
func (r request) find(field string) (protoreflect.Value, bool) {
	fd := r.msg.Descriptor().Fields().ByName(protoreflect.Name(field))
	if fd == nil || !r.msg.Has(fd) {
		return protoreflect.Value{}, false
	}
	return r.msg.Get(fd), true
}

// named returns the name that a request is about, checked.
func (t *Table[M]) named(r request) (string, error) {
	field, name := r.roles.Name, ""
	switch {
	case field != "":
		name = r.text(field)
	case r.roles.Resource != "":
		m, err := t.given(r)
		if err != nil {
			return "", err
		}
		field, name = r.roles.Resource+"."+t.cfg.NameField, t.nameOf(m)
	default:
		return "", r.lacks("the name of a " + string(t.message.Name()))
	}
	return name, t.pattern.check(field, name)
}

// given returns the resource in a request.
func (t *Table[M]) given(r request) (M, error) {
	var none M
	if r.roles.Resource == "" {
		return none, r.lacks("a " + string(t.message.Name()))
	}
	v, ok := r.find(r.roles.Resource)
	if !ok {
		return none, listing.Invalid(r.roles.Resource, "is missing")
	}
	m, ok := v.Message().Interface().(M)
	if !ok {
		return none, r.lacks(fmt.Sprintf("a %T", none))
	}
	return m, nil
}

// expects reports whether a request asks for one revision of a resource.
func (t *Table[M]) expects(r request) bool {
	_, ok := r.find("expected_" + t.cfg.Revision.Field)
	return ok
}

// stale returns ErrStale for a message of another revision than the request expects.
func (t *Table[M]) stale(r request, m M) error {
	want, ok := r.find("expected_" + t.cfg.Revision.Field)
	if !ok || want.Equal(m.ProtoReflect().Get(t.revision)) {
		return nil
	}
	return fmt.Errorf("its %s: %w", t.cfg.Revision.Text(m), apiversion.ErrStale)
}

// within is what a list or watch is about.
type within struct {
	scope scope
	none  bool // nothing can be in there
	where listing.Filter
}

func (t *Table[M]) within(r request) (within, error) {
	in, err := t.pattern.scope(r.roles.Parent, r.text(r.roles.Parent))
	if err != nil {
		return within{}, err
	}
	more := t.cfg.Within(r.msg.Interface())
	narrow, ok := in.narrow(more.Prefix)
	where, err := more.Where.Check(t.message)
	if err != nil {
		return within{}, connect.NewError(connect.CodeInternal, fmt.Errorf("within %s: %w", r.msg.Descriptor().FullName(), err))
	}
	return within{narrow, !ok, where}, nil
}
