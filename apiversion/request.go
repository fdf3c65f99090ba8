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

// call is the state of one client request.
type call struct {
	*route
	*served
	caller string
	old    *dynamicpb.Message
	now    *dynamicpb.Message
	order  listing.Order          // order_by in old terms
	mask   *fieldmaskpb.FieldMask // read mask in old terms
	names  [][2]string            // translated names and parents: old, new
	// rereads is true if the update writes back what it read. The handler then retries it after a
	// concurrent change.
	rereads bool
	// later collects events until the transaction has committed. Nil: observers get them at once.
	later *[]Event
}

// translate makes the new request. It returns errors for the client.
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

// refuse adds code and detail to an error that has no code yet. field is the request field to
// blame.
func refuse(field string, err error) error {
	mapping, inMessage, coded := new(transform.MappingError), new(fieldError), new(connect.Error)
	switch {
	case err == nil:
		return nil
	// An error with a code comes from a deeper step or from the new service. Keep it.
	case errors.As(err, &coded):
		return err
	case errors.As(err, &inMessage):
		return listing.Invalid(inMessage.path, "%s", inMessage.reason)
	// The mapping names the field in old terms. Blame the request field that holds the text.
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

// derive fills the new request from all fields that handled does not list.
func (c *call) derive(ctx context.Context, handled []string) error {
	// A client newer than this program sent a field that nothing here can translate.
	if len(c.old.GetUnknown()) > 0 {
		return &fieldError{string(c.old.Descriptor().FullName()), "has a protobuf field that this version does not know"}
	}
	// The token belongs to the old request. setToken translates it once the new one is complete.
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
		// Unset fields need no translation, and Method.Request has set the handled ones.
		if !c.old.Has(fd) || slices.Contains(handled, string(fd.Name())) {
			continue
		}
		if err := c.requestField(ctx, fd); err != nil {
			return refuse(string(fd.Name()), err)
		}
	}
	return refuse(c.from.PageToken, c.setToken(token))
}

// requestField translates one set field of the old request.
func (c *call) requestField(ctx context.Context, fd protoreflect.FieldDescriptor) error {
	name := string(fd.Name())
	target, isRole := c.from.counterpart(c.to, name)
	to := c.now.Descriptor().Fields().ByName(protoreflect.Name(target))
	if !isRole {
		to = c.route.field(name)
	}
	switch {
	case name == c.from.ReadMask && isRole:
		// Request all fields from the new version. A conversion may need more fields than the mask
		// names, and would read the missing ones as zero.
		c.mask = listing.Mask(c.old, fd.Name())
		return listing.CheckMask(c.mask, c.resource.Old)
	case name == c.from.UpdateMask && isRole:
		return nil // setResource translates it
	case name == c.from.PageToken && isRole && !c.OpaqueTokens:
		return nil // setToken sets it last, because it depends on all other fields
	case name == c.from.Resource && isRole:
		return c.setResource(ctx)
	// Dropping the field silently would change what the client asked for.
	case to == nil:
		return &fieldError{name, "is no longer supported: leave it unset"}
	}
	text := c.old.Get(fd)
	switch {
	case name == c.from.Names && isRole:
		return c.setNames(to, text.List())
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

// text translates the value of a role that is a string.
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

// name translates a resource name and remembers it, so that errors show the client's name.
func (c *call) name(old string) (string, error) {
	now, err := c.resource.Name(old)
	return c.remember(old, now, err)
}

// setNames translates the names of several resources.
func (c *call) setNames(to protoreflect.FieldDescriptor, names protoreflect.List) error {
	list := c.now.Mutable(to).List()
	for i := range names.Len() {
		now, err := c.name(names.Get(i).String())
		if err != nil {
			return err
		}
		list.Append(protoreflect.ValueOfString(now))
	}
	return nil
}

func (c *call) remember(old, now string, err error) (string, error) {
	if err == nil && now != old && old != "" {
		c.names = append(c.names, [2]string{old, now})
	}
	return now, err
}

// givenToken parses the page token and checks that it belongs to this request. It returns nil if
// there is no token to translate.
func (c *call) givenToken() (*listing.Token, error) {
	text := listing.Text(c.old, protoreflect.Name(c.from.PageToken))
	if text == "" || c.OpaqueTokens {
		return nil, nil
	}
	// A token that is dropped would start the list again from the beginning, without an end.
	if c.to.PageToken == "" {
		return nil, &fieldError{c.from.PageToken, "is no longer supported: leave it unset"}
	}
	t, err := listing.ParseToken(text)
	if err != nil {
		return nil, err
	}
	digest, err := listing.Digest(c.old, c.from.listing())
	// A token holds a place in one list only. With another filter or order it would skip records.
	if err == nil && t.Digest != digest {
		err = listing.ErrOtherRequest
	}
	return &t, err
}

// setToken translates the page token. It runs after all other fields, since the digest covers the
// new request.
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
