package apiversion

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
)

// responseField describes how to make one field of the old response.
type responseField struct {
	old, now protoreflect.FieldDescriptor
	resource *Resource // set for a field, or a list, of resources
	kind     responseKind
}

type responseKind int

const (
	// The value is copied from the new field of the same type.
	copied responseKind = iota
	oneResource
	manyResources
	nextToken
	recordName
)

// checkResponse finds a source for every field of the old response, so that NewTable fails instead
// of a request.
func (r *route) checkResponse() error {
	out, in := r.old.Output(), r.now.Output()
	for _, res := range r.resources {
		// A response that is the resource itself needs no pairs of fields.
		if out != res.Old {
			continue
		}
		if in != res.New && singular(in, res.New) == nil {
			if r.Response != nil {
				return nil
			}
			return fmt.Errorf("its response is a %s, and %s has none", out.FullName(), in.FullName())
		}
		r.whole = res
		return nil
	}
	for i := range out.Fields().Len() {
		fd := out.Fields().Get(i)
		if slices.Contains(r.Unset, string(fd.Name())) {
			continue
		}
		f, err := r.responseField(fd, in)
		if err != nil && r.Response != nil {
			continue // Method.Response makes it
		}
		if err != nil {
			return err
		}
		r.response = append(r.response, f)
	}
	return nil
}

func (r *route) responseField(fd protoreflect.FieldDescriptor, in protoreflect.MessageDescriptor) (responseField, error) {
	name := string(fd.Name())
	if paired, ok := r.ResponseFields[name]; ok {
		name = paired
	}
	same := in.Fields().ByName(protoreflect.Name(name))
	f := responseField{old: fd, now: same}
	for _, res := range r.resources {
		if fd.Message() != res.Old || fd.IsMap() {
			continue
		}
		f.resource, f.kind = res, oneResource
		if fd.IsList() {
			f.kind = manyResources
		}
		// The names differ. The field is still certain if the new response has only one of that
		// type.
		if same == nil || same.Message() != res.New {
			f.now = only(in, res.New, fd.IsList())
		}
		if f.now == nil && !fd.IsList() && in == res.New {
			return f, nil // the new response is the resource
		}
		if f.now == nil {
			return f, fmt.Errorf("%s of its response has no counterpart in %s: pair them in ResponseFields, or list it in Unset", fd.Name(), in.FullName())
		}
		return f, nil
	}
	if same == nil {
		return f, fmt.Errorf("%s of its response has no counterpart in %s: pair them in ResponseFields, or list it in Unset", fd.Name(), in.FullName())
	}
	// From here on the field is copied, or is a token or a name.
	if err := sameType(fd, same, name); err != nil {
		return f, err
	}
	switch {
	case fd.Kind() != protoreflect.StringKind || fd.IsList():
	case fd.Name() == "next_page_token" && !r.OpaqueTokens && r.from.PageToken != "":
		f.kind = nextToken
	case r.resource != nil && (fd.Name() == "name" || fd.Name() == r.resource.OldName):
		f.kind, f.resource = recordName, r.resource
	}
	return f, nil
}

// only returns the single field of a message type in d. It returns nil if d has none or several.
func only(d, of protoreflect.MessageDescriptor, list bool) protoreflect.FieldDescriptor {
	var found protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Message() != of || fd.IsMap() || fd.IsList() != list {
			continue
		}
		if found != nil {
			return nil
		}
		found = fd
	}
	return found
}

// respond makes the old response, or a message of a stream. It returns errors for the client. An
// error means that the service has data that the client's version cannot express.
func (c *call) respond(ctx context.Context, now *dynamicpb.Message) (*dynamicpb.Message, error) {
	old := dynamicpb.NewMessage(c.route.old.Output())
	derive := func(handled ...string) error { return c.deriveResponse(ctx, now, old, handled) }
	var err error
	if c.Response != nil {
		err = c.Response(ctx, c.old, now, old, derive)
	} else {
		err = derive()
	}
	if err != nil {
		if coded, ok := err.(*connect.Error); ok { //nolint:errorlint // a wrapped one is not meant for clients
			return nil, coded
		}
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("%s cannot be shown in this version: %w", c.route.now.Output().Name(), err))
	}
	return old, nil
}

func (c *call) deriveResponse(ctx context.Context, now, old *dynamicpb.Message, handled []string) error {
	// The old response is the resource.
	if c.whole != nil {
		from := protoreflect.Message(now)
		if now.Descriptor() != c.whole.New {
			from = now.Get(singular(now.Descriptor(), c.whole.New)).Message()
		}
		shown, err := c.show(ctx, c.whole, from.Interface())
		if err != nil {
			return err
		}
		return recast(old, shown)
	}
	for _, f := range c.response {
		// An unset new field leaves the old one unset. Converting zero could fail.
		if f.now != nil && !now.Has(f.now) || slices.Contains(handled, string(f.old.Name())) {
			continue
		}
		if err := c.respondField(ctx, f, now, old); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) respondField(ctx context.Context, f responseField, now, old *dynamicpb.Message) error {
	switch f.kind {
	case oneResource:
		from := protoreflect.Message(now)
		if f.now != nil {
			from = now.Get(f.now).Message()
		}
		shown, err := c.show(ctx, f.resource, from.Interface())
		if err != nil {
			return err
		}
		return set(old, f.old, shown)
	case manyResources:
		return c.respondList(ctx, f, now.Get(f.now).List(), old.Mutable(f.old).List())
	case nextToken:
		token, err := c.nextToken(now.Get(f.now).String())
		if err == nil && token != "" {
			old.Set(f.old, protoreflect.ValueOfString(token))
		}
		return err
	case recordName:
		name, err := f.resource.reverse().Name(now.Get(f.now).String())
		if err == nil {
			old.Set(f.old, protoreflect.ValueOfString(name))
		}
		return err
	default:
		return copyField(old, f.old, f.now, now.Get(f.now), string(f.now.Name()))
	}
}

// respondList converts a page of resources. In name order it checks that both versions sort the
// names alike. Otherwise a page token would skip or repeat records after a flip.
func (c *call) respondList(ctx context.Context, f responseField, from, to protoreflect.List) error {
	lastOld, lastNew := "", ""
	for i := range from.Len() {
		item := from.Get(i).Message()
		shown, err := c.show(ctx, f.resource, item.Interface())
		if err != nil {
			return err
		}
		m, err := dynamic(shown, f.resource.Old)
		if err != nil {
			return err
		}
		// The order is broken if a name rises in New and does not rise in Old.
		oldName, newName := nameOf(m, f.resource.OldName), nameOf(item, f.resource.NewName)
		if c.from.PageToken != "" && !c.OpaqueTokens && len(c.order) == 0 && newName > lastNew && oldName <= lastOld && lastOld != "" && oldName != "" {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%q comes after %q here but not in the version that serves it: names must sort the same, or the method have opaque tokens", lastOld, oldName))
		}
		lastOld, lastNew = oldName, newName
		to.Append(protoreflect.ValueOfMessage(m))
	}
	return nil
}

// show converts a resource into the client's version and applies the read mask.
func (c *call) show(ctx context.Context, res *Resource, now proto.Message) (proto.Message, error) {
	old, err := res.Down(now, nil)
	c.record(ctx, old, now, err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOf(now.ProtoReflect(), res.NewName), err)
	}
	// The read mask covers the resource of the request. Other resources in the response stay whole.
	if len(c.mask.GetPaths()) == 0 || res != c.resource {
		return old, nil
	}
	// The record event already holds old, so mask a copy.
	masked := proto.Clone(old)
	return masked, listing.ApplyMask(masked, c.mask)
}

// nextToken translates the next page token into the client's version.
func (c *call) nextToken(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	t, err := listing.ParseToken(text)
	if err != nil {
		return "", connect.NewError(connect.CodeInternal, fmt.Errorf("next_page_token is not one of package listing: %s must have opaque tokens", c.route.Method.Old))
	}
	digest, err := listing.Digest(c.old, c.from.listing())
	if err != nil {
		return "", err
	}
	order, err := c.resource.Order(c.order)
	if err != nil {
		return "", err
	}
	// The token holds New names and values, so the reverse resource translates it.
	t, err = c.resource.reverse().Token(t, order, digest)
	return t.String(), err
}
