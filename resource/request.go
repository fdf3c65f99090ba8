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

// request is a request message with the roles of its fields.
type request struct {
	msg   protoreflect.Message
	roles apiversion.Roles
}

func (t *Table[M]) request(req proto.Message) request {
	m := req.ProtoReflect()
	return request{m, apiversion.RequestRoles(m.Descriptor(), t.message, t.name.Name())}
}

// lacks returns the error of a method whose request has no field for a role. The program is at
// fault, not its client.
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

// named returns the name of the resource in a request, checked against the pattern.
func (t *Table[M]) named(r request) (string, error) {
	field, name := r.roles.Name, ""
	switch {
	case field != "":
		name = r.text(field)
	// An update names the resource inside the resource.
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
	// Clients cannot send another type, so this is an error of the program.
	m, ok := v.Message().Interface().(M)
	if !ok {
		return none, r.lacks(fmt.Sprintf("a %T", none))
	}
	return m, nil
}

// expects reports whether a request demands a certain revision of a resource.
func (t *Table[M]) expects(r request) bool {
	_, ok := r.find("expected_" + t.cfg.Revision.Field)
	return ok
}

// stale returns ErrStale if the message does not have the revision that the request demands.
func (t *Table[M]) stale(r request, m M) error {
	want, ok := r.find("expected_" + t.cfg.Revision.Field)
	if !ok || want.Equal(m.ProtoReflect().Get(t.revision)) {
		return nil
	}
	return fmt.Errorf("its %s: %w", t.cfg.Revision.Text(m), apiversion.ErrStale)
}

// within is the range of a list or watch.
type within struct {
	scope scope
	none  bool // the range is empty
	where listing.Filter
}

func (t *Table[M]) within(r request) (within, error) {
	in, err := t.pattern.scope(r.roles.Parent, r.text(r.roles.Parent))
	if err != nil {
		return within{}, err
	}
	more := t.cfg.Within(r.msg.Interface())
	narrow, ok := in.narrow(more.Prefix)
	// The filter is the program's own, so an error in it is not the client's.
	where, err := more.Where.Check(t.message)
	if err != nil {
		return within{}, connect.NewError(connect.CodeInternal, fmt.Errorf("within %s: %w", r.msg.Descriptor().FullName(), err))
	}
	return within{narrow, !ok, where}, nil
}
