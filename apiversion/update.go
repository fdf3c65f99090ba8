package apiversion

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// setResource translates the resource of a request and sets it in the new one.
func (c *call) setResource(ctx context.Context) error {
	from := protoreflect.Name(c.from.Resource)
	old := c.old.Get(c.old.Descriptor().Fields().ByName(from)).Message()
	fd := c.now.Descriptor().Fields().ByName(protoreflect.Name(c.to.Resource))
	if c.resource.OldName != "" {
		// Remember the name, so that errors of the new service show the client's name.
		if _, err := c.name(nameOf(old, c.resource.OldName)); err != nil {
			return &fieldError{c.from.Resource + "." + string(c.resource.OldName), err.Error()}
		}
	}
	var now proto.Message
	var err error
	if c.updates() {
		now, err = c.update(ctx, old.Interface())
	} else {
		now, err = c.resource.put(old.Interface(), nil)
	}
	c.record(ctx, old.Interface(), now, err)
	if err != nil {
		return within(c.from.Resource, err)
	}
	return set(c.now, fd, now)
}

// within prefixes the path in an error with the request field.
func within(field string, err error) error {
	inMessage, mapping := new(fieldError), new(transform.MappingError)
	switch {
	case errors.As(err, &inMessage):
		return &fieldError{field + "." + inMessage.path, inMessage.reason}
	case errors.As(err, &mapping):
		return &fieldError{field + "." + mapping.Field, mapping.Reason}
	}
	return err
}

// update makes the new resource of an update. It applies the edit to the whole existing resource as
// the old version shows it. A conversion can then see all the fields that it joins.
func (c *call) update(ctx context.Context, edit proto.Message) (proto.Message, error) {
	mask := c.updateMask(edit.ProtoReflect())
	// A retry reads again and so applies the edit to the latest state.
	have, err := c.existing(ctx, edit.ProtoReflect())
	if err != nil {
		return nil, err
	}
	whole := edit
	if have != nil {
		shown, err := c.resource.Down(have, nil)
		if err != nil {
			return nil, fmt.Errorf("what exists: %w", err)
		}
		current, err := dynamic(shown, c.resource.Old)
		if err != nil {
			return nil, err
		}
		// Update overwrites the etag, and condition needs the one that was read.
		read := proto.CloneOf(current)
		if err := listing.Update(current, edit, mask); err != nil {
			return nil, err
		}
		c.condition(current, edit.ProtoReflect(), read)
		whole = current
	} else if err := checkMask(mask, edit); err != nil {
		return nil, err
	}
	if c.to.UpdateMask != "" {
		translated, err := c.resource.UpdateMask(mask)
		if err != nil {
			return nil, refuse(c.maskField(), err)
		}
		if len(translated.GetPaths()) == 0 {
			// An empty mask stands for all set fields, and all that were read are set. It would
			// write them all back and undo concurrent changes.
			return c.nameOnly(edit.ProtoReflect())
		}
		listing.SetMask(c.now, protoreflect.Name(c.to.UpdateMask), translated)
	}
	return c.resource.put(whole, have)
}

// etagField is the resource field that makes an update conditional.
const etagField = "etag"

// condition sets the etag of an update. If the new request has a mask, the update writes only what
// the client asked for, so the client's etag or none is right. Without a mask it also writes back
// the fields that it read. It then needs the etag that it read, or it would undo concurrent
// changes.
func (c *call) condition(current *dynamicpb.Message, edit protoreflect.Message, read *dynamicpb.Message) {
	fd := c.resource.Old.Fields().ByName(etagField)
	own := fd != nil && edit.Has(fd)
	c.rereads = c.to.UpdateMask == "" && !own
	if fd == nil {
		return // an etag of New alone arrives with the existing resource
	}
	current.Clear(fd)
	switch {
	case own:
		current.Set(fd, edit.Get(fd))
	case c.rereads && read.Has(fd):
		current.Set(fd, read.Get(fd))
	}
}

// nameOnly returns a New resource with only its name set, for an update that changes nothing.
func (c *call) nameOnly(edit protoreflect.Message) (proto.Message, error) {
	out := dynamicpb.NewMessage(c.resource.New)
	name, err := c.resource.Name(nameOf(edit, c.resource.OldName))
	if c.resource.NewName != "" && name != "" {
		out.Set(c.resource.New.Fields().ByName(c.resource.NewName), protoreflect.ValueOfString(name))
	}
	return out, err
}

// checkMask checks an update mask if no existing resource can be read.
func checkMask(mask *fieldmaskpb.FieldMask, edit proto.Message) error {
	return listing.Update(edit.ProtoReflect().New().Interface(), edit, mask)
}

func (c *call) maskField() string {
	if c.from.UpdateMask != "" {
		return c.from.UpdateMask
	}
	return c.from.Resource
}

// updateMask returns the fields that the client changes: those of the mask, or all set fields if
// the mask is empty. If the request has no mask, it returns "*".
func (c *call) updateMask(edit protoreflect.Message) *fieldmaskpb.FieldMask {
	if c.from.UpdateMask == "" {
		return &fieldmaskpb.FieldMask{Paths: []string{"*"}}
	}
	mask := listing.Mask(c.old, protoreflect.Name(c.from.UpdateMask))
	if len(mask.GetPaths()) == 0 {
		return populated(edit, c.resource.OldName)
	}
	return mask
}

// existing reads the present state of the resource. It returns nil if there is none, or no method
// to read it.
func (c *call) existing(ctx context.Context, edit protoreflect.Message) (proto.Message, error) {
	if c.complement == nil {
		return nil, nil
	}
	name := nameOf(edit, c.resource.OldName)
	if name == "" && c.from.Name != "" {
		name = nameOf(c.old, protoreflect.Name(c.from.Name))
	}
	// The new service knows the record by its new name only.
	name, err := c.resource.Name(name)
	if err != nil {
		return nil, err
	}
	req := dynamicpb.NewMessage(c.complement.now.Input())
	req.Set(req.Descriptor().Fields().ByName(protoreflect.Name(c.complement.to.Name)), protoreflect.ValueOfString(name))
	resp, err := c.read(ctx, req)
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, nil // the update reports NotFound, or creates it
	}
	if err != nil {
		return nil, c.clientError(err)
	}
	if resp.Descriptor() == c.resource.New {
		return resp, nil
	}
	return resp.Get(singular(resp.Descriptor(), c.resource.New)).Message().Interface(), nil
}

// put converts a resource that a client writes. It converts the result back and fails if a value
// got lost. The converter cannot check that itself: in the other direction it must drop fields that
// the other version does not have.
func (r *Resource) put(old, have proto.Message) (proto.Message, error) {
	now, err := r.Up(old, have)
	if err != nil {
		return nil, err
	}
	shown, err := r.Down(now, nil)
	if err != nil {
		return nil, fmt.Errorf("what was put could not be shown again: %w", err)
	}
	want, err := dynamic(old, r.Old)
	if err != nil {
		return nil, err
	}
	got, err := dynamic(shown, r.Old)
	if err != nil {
		return nil, err
	}
	if path := differs(want, got); path != "" {
		return nil, &fieldError{path, "has a value that the other version cannot hold"}
	}
	return now, nil
}

// differs returns the path of the first field in which two messages differ, or "" if they are
// equal.
func differs(a, b *dynamicpb.Message) string {
	if proto.Equal(a, b) {
		return ""
	}
	return firstDifference(a, b)
}

func firstDifference(a, b protoreflect.Message) string {
	for i := range a.Descriptor().Fields().Len() {
		fd := a.Descriptor().Fields().Get(i)
		name := string(fd.Name())
		switch {
		case a.Has(fd) != b.Has(fd):
			return name
		case !a.Has(fd) || a.Get(fd).Equal(b.Get(fd)):
		case fd.Message() != nil && !fd.IsList() && !fd.IsMap():
			return name + "." + firstDifference(a.Get(fd).Message(), b.Get(fd).Message())
		default:
			return name
		}
	}
	return "an unknown field"
}
