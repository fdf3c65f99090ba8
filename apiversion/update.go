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

// setResource translates the resource of a request.
func (c *call) setResource(ctx context.Context) error {
	from := protoreflect.Name(c.from.Resource)
	old := c.old.Get(c.old.Descriptor().Fields().ByName(from)).Message()
	fd := c.now.Descriptor().Fields().ByName(protoreflect.Name(c.to.Resource))
	if c.resource.OldName != "" {
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

// within puts the field of the request before the path of an error.
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

// update makes the resource of an update: the edit is made on the whole of what exists,
// as the old version shows it, so that what is converted together is there together.
func (c *call) update(ctx context.Context, edit proto.Message) (proto.Message, error) {
	mask := c.updateMask(edit.ProtoReflect())
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
			// A mask without paths stands for what is set, and of what was read all is set:
			// written back, it would undo what others have changed meanwhile.
			return c.nameOnly(edit.ProtoReflect())
		}
		listing.SetMask(c.now, protoreflect.Name(c.to.UpdateMask), translated)
	}
	return c.resource.put(whole, have)
}

// etagField is the condition of an update that is part of the resource.
const etagField = "etag"

// condition sets what an update is conditional on. With a mask in the new version that is
// the client's own condition or none, for the update writes nothing else than the client
// asks for. Without one it writes what was read, too, which others may have changed since.
func (c *call) condition(current *dynamicpb.Message, edit protoreflect.Message, read *dynamicpb.Message) {
	fd := c.resource.Old.Fields().ByName(etagField)
	own := fd != nil && edit.Has(fd)
	c.rereads = c.to.UpdateMask == "" && !own
	if fd == nil {
		return // one that the new version alone has comes with what exists
	}
	current.Clear(fd)
	switch {
	case own:
		current.Set(fd, edit.Get(fd))
	case c.rereads && read.Has(fd):
		current.Set(fd, read.Get(fd))
	}
}

// nameOnly is a resource that names a record and sets nothing of it.
func (c *call) nameOnly(edit protoreflect.Message) (proto.Message, error) {
	out := dynamicpb.NewMessage(c.resource.New)
	name, err := c.resource.Name(nameOf(edit, c.resource.OldName))
	if c.resource.NewName != "" && name != "" {
		out.Set(c.resource.New.Fields().ByName(c.resource.NewName), protoreflect.ValueOfString(name))
	}
	return out, err
}

// checkMask checks an update mask where nothing is there to apply it to.
func checkMask(mask *fieldmaskpb.FieldMask, edit proto.Message) error {
	return listing.Update(edit.ProtoReflect().New().Interface(), edit, mask)
}

func (c *call) maskField() string {
	if c.from.UpdateMask != "" {
		return c.from.UpdateMask
	}
	return c.from.Resource
}

// updateMask is what the client asks to change: what it names, else what it sets; all of
// it where the request has no mask.
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

// existing reads the present state of the resource, nil if there is none.
func (c *call) existing(ctx context.Context, edit protoreflect.Message) (proto.Message, error) {
	if c.complement == nil {
		return nil, nil
	}
	name := nameOf(edit, c.resource.OldName)
	if name == "" && c.from.Name != "" {
		name = nameOf(c.old, protoreflect.Name(c.from.Name))
	}
	name, err := c.resource.Name(name)
	if err != nil {
		return nil, err
	}
	req := dynamicpb.NewMessage(c.complement.now.Input())
	req.Set(req.Descriptor().Fields().ByName(protoreflect.Name(c.complement.to.Name)), protoreflect.ValueOfString(name))
	resp, err := c.read(ctx, req)
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, nil // the update itself reports that, or creates it
	}
	if err != nil {
		return nil, c.clientError(err)
	}
	if resp.Descriptor() == c.resource.New {
		return resp, nil
	}
	return resp.Get(singular(resp.Descriptor(), c.resource.New)).Message().Interface(), nil
}

// put converts what a client wants to be stored, and makes sure that it will be: what the
// client's version shows of the result must be what was put. A converter alone may leave
// out what the other version does not have, for in the other direction that is right.
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

// differs returns the path of the first field in which two messages differ, "" if they
// are equal.
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
