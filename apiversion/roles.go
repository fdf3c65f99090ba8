package apiversion

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
)

// Roles names the request fields that have a meaning for translation.
//
// An empty role is found by its usual name and type: name (or the resource's name field), names (of
// several resources), parent, filter, order_by, page_size, page_token, read_mask, update_mask, and the field that holds the
// resource. field_mask masks an update if the request has a resource, otherwise a read. "-" means
// that no field has the role.
type Roles struct {
	Name, Names, Parent, Resource        string
	Filter, OrderBy, PageSize, PageToken string
	ReadMask, UpdateMask                 string
}

// isText reports whether a field is a single string.
func isText(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind && !fd.IsList()
}

// isTexts reports whether a field is a list of strings.
func isTexts(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind && fd.IsList()
}

// noField disables a role, even if a field has its usual name.
const noField = "-"

// RequestRoles finds the roles in a request by the usual names and types of its fields. message is
// the resource of the request. nameField is the resource's field that holds its name, or empty.
func RequestRoles(request, message protoreflect.MessageDescriptor, nameField protoreflect.Name) Roles {
	usual := listing.FieldsOf(request)
	out := Roles{
		Filter: string(usual.Filter), OrderBy: string(usual.OrderBy), PageSize: string(usual.PageSize), PageToken: string(usual.PageToken), ReadMask: string(usual.ReadMask),
	}
	text := func(name string) string {
		if fd := request.Fields().ByName(protoreflect.Name(name)); fd != nil && isText(fd) {
			return name
		}
		return ""
	}
	out.Parent = text("parent")
	// Some services name the request field like the resource's own name field.
	if out.Name = text("name"); out.Name == "" && nameField != "" {
		out.Name = text(string(nameField))
	}
	if fd := request.Fields().ByName("names"); fd != nil && isTexts(fd) {
		out.Names = "names"
	}
	if fd := singular(request, message); fd != nil {
		out.Resource = string(fd.Name())
	}
	if fd := request.Fields().ByName("update_mask"); fd != nil && listing.IsMask(fd) {
		out.UpdateMask = "update_mask"
	}
	// A request that carries a resource writes it, so field_mask cannot mask a read.
	if out.ReadMask == "field_mask" && out.Resource != "" {
		out.ReadMask = ""
		if out.UpdateMask == "" {
			out.UpdateMask = "field_mask"
		}
	}
	return out
}

// rolesOf returns the usual roles of a request, replaced by the declared ones. It fails if a
// declared field is missing or has the wrong type.
func rolesOf(d protoreflect.MessageDescriptor, res *Resource, old bool, given Roles) (Roles, error) {
	if res == nil {
		return Roles{}, nil // without a resource no field has a known meaning
	}
	message, nameField := res.New, res.NewName
	if old {
		message, nameField = res.Old, res.OldName
	}
	out := RequestRoles(d, message, nameField)
	for _, r := range []struct {
		role, given *string
		fits        func(protoreflect.FieldDescriptor) bool
	}{
		{&out.Name, &given.Name, isText}, {&out.Names, &given.Names, isTexts}, {&out.Parent, &given.Parent, isText}, {&out.Filter, &given.Filter, isText}, {&out.OrderBy, &given.OrderBy, isText},
		{&out.PageToken, &given.PageToken, isText}, {&out.PageSize, &given.PageSize, isNumber},
		{&out.Resource, &given.Resource, func(fd protoreflect.FieldDescriptor) bool { return fd.Message() == message && !fd.IsList() }},
		{&out.ReadMask, &given.ReadMask, listing.IsMask}, {&out.UpdateMask, &given.UpdateMask, listing.IsMask},
	} {
		switch *r.given {
		case "":
		case noField:
			*r.role = ""
		default:
			fd := d.Fields().ByName(protoreflect.Name(*r.given))
			if fd == nil || !r.fits(fd) {
				return Roles{}, fmt.Errorf("%s has no field %s that fits its role", d.FullName(), *r.given)
			}
			*r.role = *r.given
		}
	}
	return out, nil
}

// listing returns the roles as package listing takes them, for listing.Digest.
func (r Roles) listing() listing.Fields {
	return listing.Fields{
		Filter: protoreflect.Name(r.Filter), OrderBy: protoreflect.Name(r.OrderBy), PageSize: protoreflect.Name(r.PageSize),
		PageToken: protoreflect.Name(r.PageToken), ReadMask: protoreflect.Name(r.ReadMask),
	}
}

// counterpart returns the field of to with the same role as a field of r. The name is empty if to
// has no such field.
func (r Roles) counterpart(to Roles, field string) (name string, isRole bool) {
	for _, pair := range [][2]string{
		{r.Name, to.Name}, {r.Names, to.Names}, {r.Parent, to.Parent}, {r.Resource, to.Resource}, {r.Filter, to.Filter}, {r.OrderBy, to.OrderBy},
		{r.PageSize, to.PageSize}, {r.PageToken, to.PageToken}, {r.ReadMask, to.ReadMask}, {r.UpdateMask, to.UpdateMask},
	} {
		if pair[0] != "" && pair[0] == field {
			return pair[1], true
		}
	}
	return "", false
}

// singular returns the only single-valued field of a message type in d. It returns nil if d has
// none or several.
func singular(d, of protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	var found protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Message() != of || fd.IsList() || fd.IsMap() {
			continue
		}
		if found != nil {
			return nil
		}
		found = fd
	}
	return found
}

// updates reports whether the request changes parts of an existing resource.
func (r *route) updates() bool {
	if r.from.Resource == "" || r.to.Resource == "" {
		return false
	}
	if r.from.UpdateMask != "" || r.to.UpdateMask != "" {
		return true
	}
	// Without any mask only the method's name tells an update from a create.
	for _, verb := range []string{"Update", "Patch", "Replace", "Set"} {
		if strings.HasPrefix(r.New, verb) {
			return true
		}
	}
	return false
}

// field returns the new field into which an old field without a role is copied. It returns nil if
// there is none.
func (r *route) field(old string) protoreflect.FieldDescriptor {
	name := old
	if paired, ok := r.RequestFields[old]; ok {
		name = paired
	}
	return r.now.Input().Fields().ByName(protoreflect.Name(name))
}

// checkRequest finds declarations that must fail. A field without counterpart is allowed, because
// clients may leave it unset. A request that sets it fails.
func (r *route) checkRequest() error {
	in, out := r.old.Input(), r.now.Input()
	for old, now := range r.RequestFields {
		a, b := in.Fields().ByName(protoreflect.Name(old)), out.Fields().ByName(protoreflect.Name(now))
		switch {
		case a == nil:
			return fmt.Errorf("RequestFields: %s has no field %s", in.FullName(), old)
		case b == nil:
			return fmt.Errorf("RequestFields: %s has no field %s", out.FullName(), now)
		}
		if err := sameType(a, b, old); err != nil {
			return err
		}
	}
	// Method.Request may handle any field, so a missing counterpart proves nothing.
	if r.Request != nil {
		return nil
	}
	if r.from.Resource != "" && r.to.Resource == "" {
		return fmt.Errorf("%s has no field of type %s for %s", out.FullName(), r.resource.New.FullName(), r.from.Resource)
	}
	for i := range in.Fields().Len() {
		fd := in.Fields().Get(i)
		if _, isRole := r.from.counterpart(r.to, string(fd.Name())); isRole {
			continue
		}
		if to := r.field(string(fd.Name())); to != nil {
			if err := sameType(fd, to, string(fd.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
