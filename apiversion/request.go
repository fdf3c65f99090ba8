package apiversion

import (
	"context"
	"errors"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// call is one request on its way.
type call struct {
	*route
	*served
	caller string
	old    *dynamicpb.Message
	now    *dynamicpb.Message
	order  listing.Order          // in old terms
	mask   *fieldmaskpb.FieldMask // the read mask, in old terms
	names  [][2]string            // names and parents that were translated: old, new
	// rereads is true if the update writes what was read, and is made again when that has
	// changed meanwhile.
	rereads bool
	// later keeps events until it is known that they count; nil: they are shown at once.
	later *[]Event
}

// translate makes the new request. Its errors are those that the client gets.
func (c *call) translate(ctx context.Context) error {
	c.now = dynamicpb.NewMessage(c.route.now.Input())
	derive := func(handled ...string) error { return c.derive(ctx, handled) }
	var err error
	if c.Request != nil {
		err = c.Request(ctx, c.old, c.now, derive)
	} else {
		err = derive()
	}
	return refuse("request", err)
}

// refuse gives an error that has no code its code and detail.
func refuse(field string, err error) error {
	mapping, inMessage, coded := new(transform.MappingError), new(fieldError), new(connect.Error)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.As(err, &inMessage):
		return listing.Invalid(inMessage.path, "%s", inMessage.reason)
	case errors.As(err, &mapping):
		return listing.Invalid(field, "%s", mapping)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		return listing.Invalid(field, "%s", err)
	}
}

func (c *call) derive(ctx context.Context, handled []string) error {
	if len(c.old.GetUnknown()) > 0 {
		return &fieldError{string(c.old.Descriptor().FullName()), "has a protobuf field that this version does not know"}
	}
	var token *listing.Token
	var err error
	if !slices.Contains(handled, c.from.PageToken) {
		token, err = c.givenToken()
	}
	if err != nil {
		return refuse(c.from.PageToken, err)
	}
	for i := range c.old.Descriptor().Fields().Len() {
		fd := c.old.Descriptor().Fields().Get(i)
		if !c.old.Has(fd) || slices.Contains(handled, string(fd.Name())) {
			continue
		}
		if err := c.requestField(ctx, fd); err != nil {
			return refuse(string(fd.Name()), err)
		}
	}
	return refuse(c.from.PageToken, c.setToken(token))
}

// requestField translates one field of the request.
func (c *call) requestField(ctx context.Context, fd protoreflect.FieldDescriptor) error {
	name := string(fd.Name())
	target, isRole := c.from.counterpart(c.to, name)
	to := c.now.Descriptor().Fields().ByName(protoreflect.Name(target))
	if !isRole {
		to = c.route.field(name)
	}
	switch {
	case name == c.from.ReadMask && isRole:
		// The new version is asked for everything: a conversion may need more than the mask
		// names, and would otherwise take what was left out for zero.
		c.mask = listing.Mask(c.old, fd.Name())
		return listing.CheckMask(c.mask, c.resource.Old)
	case name == c.from.UpdateMask && isRole:
		return nil // goes with the resource
	case name == c.from.PageToken && isRole && !c.OpaqueTokens:
		return nil // last, for it depends on all others
	case name == c.from.Resource && isRole:
		return c.setResource(ctx)
	case to == nil:
		return &fieldError{name, "is no longer supported: leave it unset"}
	}
	text := c.old.Get(fd)
	switch {
	case !isRole || c.resource == nil || name == c.from.PageToken:
		return copyField(c.now, to, fd, text, name)
	case name == c.from.PageSize:
		return setNumber(c.now, to, fd, text)
	}
	translated, err := c.text(name, text.String())
	if err != nil {
		return err
	}
	c.now.Set(to, protoreflect.ValueOfString(translated))
	return nil
}

// text translates a role that is a string.
func (c *call) text(name, text string) (string, error) {
	switch name {
	case c.from.Name:
		return c.name(text)
	case c.from.Parent:
		now, err := c.resource.Parent(text)
		return c.remember(text, now, err)
	case c.from.Filter:
		f, err := listing.ParseFilter(text, c.resource.Old)
		if err != nil {
			return "", err
		}
		if f, err = c.resource.Filter(f); err != nil {
			return "", err
		}
		return f.String(), nil
	default:
		var err error
		if c.order, err = listing.ParseOrder(text, c.resource.Old); err != nil {
			return "", err
		}
		o, err := c.resource.Order(c.order)
		return o.String(), err
	}
}

// name translates a name and remembers it for the text of errors.
func (c *call) name(old string) (string, error) {
	now, err := c.resource.Name(old)
	return c.remember(old, now, err)
}

func (c *call) remember(old, now string, err error) (string, error) {
	if err == nil && now != old && old != "" {
		c.names = append(c.names, [2]string{old, now})
	}
	return now, err
}

// givenToken reads the page token, and checks that it belongs to the request; nil if
// there is none to translate.
func (c *call) givenToken() (*listing.Token, error) {
	text := listing.Text(c.old, protoreflect.Name(c.from.PageToken))
	if text == "" || c.OpaqueTokens {
		return nil, nil
	}
	if c.to.PageToken == "" {
		return nil, &fieldError{c.from.PageToken, "is no longer supported: leave it unset"}
	}
	t, err := listing.ParseToken(text)
	if err != nil {
		return nil, err
	}
	digest, err := listing.Digest(c.old, c.from.listing())
	if err == nil && t.Digest != digest {
		err = listing.ErrOtherRequest
	}
	return &t, err
}

// setToken translates the page token, once the rest of the new request is made.
func (c *call) setToken(given *listing.Token) error {
	if given == nil {
		return nil
	}
	digest, err := listing.Digest(c.now, c.to.listing())
	if err != nil {
		return err
	}
	t, err := c.resource.Token(*given, c.order, digest)
	if err != nil {
		return err
	}
	c.now.Set(c.now.Descriptor().Fields().ByName(protoreflect.Name(c.to.PageToken)), protoreflect.ValueOfString(t.String()))
	return nil
}
