package apiversion

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Config declares how one service of the new version serves a service of the old version.
type Config struct {
	// Old is the service that clients call, New the service that handles the calls.
	Old, New protoreflect.ServiceDescriptor
	// Resources are the resource types of both services.
	Resources []*Resource
	// Methods pairs the methods. An old method without an entry is served by the new method of the
	// same name. If there is none, NewTable fails.
	Methods []Method
}

// Method declares how one old method is served.
type Method struct {
	// Old and New are method names without the service.
	Old, New string
	// Discontinued is the advice to clients of a method that is gone. New must then be empty.
	Discontinued string
	// Resource names the old message whose names the request carries. Empty: it follows from the
	// resource in the request or response, from the method's name, or from the table's only
	// resource.
	Resource string
	// OldRoles and NewRoles name request fields that do not have the usual names.
	OldRoles, NewRoles Roles
	// RequestFields and ResponseFields pair fields that mean the same under different names, old to
	// new.
	RequestFields, ResponseFields map[string]string
	// Unset lists fields of the old response that have no source in the new one.
	Unset []string
	// OpaqueTokens means that page tokens pass unchanged, because they are not tokens of package
	// listing. They are then valid in one version only, unless the service accepts both.
	OpaqueTokens bool

	// Request makes the new request instead of the derived translation. It may call derive for all
	// fields except the handled ones. It is called for each message of a client's stream.
	Request func(ctx context.Context, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error
	// Response makes the old response likewise, and each message of a stream. After a client's stream,
	// oldRequest is its latest message.
	Response func(ctx context.Context, oldRequest, now proto.Message, old *dynamicpb.Message, derive func(handled ...string) error) error
	// Requests makes any number of new requests from one old request. It takes the place of New.
	// Responses makes the old response from theirs, which have the same order.
	//
	// The handler sends the requests one after the other, in one transaction (Options.Together).
	// Each request sees the writes of the earlier ones. If one fails, none is written. After a
	// conflict with another client the transaction runs again, and so do both functions.
	Requests  func(ctx context.Context, old proto.Message) ([]Call, error)
	Responses func(ctx context.Context, old proto.Message, now []proto.Message, out *dynamicpb.Message) error
}

// Table is a checked Config. It is immutable after NewTable.
type Table struct {
	cfg    Config
	routes []*route
}

// route describes how one old method is served.
type route struct {
	Method
	service   protoreflect.ServiceDescriptor // the new service
	old, now  protoreflect.MethodDescriptor  // now is nil if discontinued or served by several requests
	resource  *Resource                      // resource of the request; may be nil
	resources []*Resource
	from, to  Roles
	// complement is the new method that reads the present state of an updated resource. It is nil
	// if the new service has none.
	complement *route
	response   []responseField
	whole      *Resource // set if the old response is a resource itself
}

// NewTable checks a declaration against both services. It copies cfg.Resources, with defaults. The
// error names the first method or resource that is wrong.
func NewTable(cfg Config) (*Table, error) {
	if cfg.Old == nil || cfg.New == nil {
		return nil, errors.New("table: both services must be given")
	}
	t := &Table{cfg: cfg}
	t.cfg.Resources = nil
	for _, r := range cfg.Resources {
		checked, err := r.checked()
		if err != nil {
			return nil, fmt.Errorf("table: %w", err)
		}
		for _, side := range []struct {
			service protoreflect.ServiceDescriptor
			message protoreflect.MessageDescriptor
		}{{cfg.Old, r.Old}, {cfg.New, r.New}} {
			// An unused message is most likely of another version than the service, by mistake.
			if !uses(side.service, side.message) {
				return nil, fmt.Errorf("table: no method of %s has a %s in its request or response", side.service.FullName(), side.message.FullName())
			}
		}
		t.cfg.Resources = append(t.cfg.Resources, checked)
	}
	// Declared methods first, then one route for every old method, so that none is forgotten.
	declared := map[string]Method{}
	for _, m := range cfg.Methods {
		if _, twice := declared[m.Old]; twice {
			return nil, fmt.Errorf("table: method %s is there twice", m.Old)
		}
		if cfg.Old.Methods().ByName(protoreflect.Name(m.Old)) == nil {
			return nil, fmt.Errorf("table: %s has no method %s", cfg.Old.FullName(), m.Old)
		}
		declared[m.Old] = m
	}
	for i := range cfg.Old.Methods().Len() {
		d := cfg.Old.Methods().Get(i)
		// Methods of the same name need no declaration.
		m, ok := declared[string(d.Name())]
		if !ok {
			m = Method{Old: string(d.Name()), New: string(d.Name())}
		}
		r, err := t.route(d, m)
		if err != nil {
			return nil, fmt.Errorf("table: method %s: %w", m.Old, err)
		}
		t.routes = append(t.routes, r)
	}
	return t, nil
}

// Path returns the path prefix of the old service, for mounting its handler.
func (t *Table) Path() string { return "/" + string(t.cfg.Old.FullName()) + "/" }

// route checks one method and makes its route.
func (t *Table) route(d protoreflect.MethodDescriptor, m Method) (*route, error) {
	if m.Requests == nil && m.Responses != nil {
		return nil, errors.New("its Responses are of Requests, and there are none of them")
	}
	r := &route{Method: m, service: t.cfg.New, old: d, resources: t.cfg.Resources}
	if m.Discontinued != "" {
		if m.Requests != nil {
			return nil, errors.New("it is discontinued and served by several requests")
		}
		if m.New != "" {
			return nil, fmt.Errorf("it is discontinued and served by %s", m.New)
		}
		return r, nil
	}
	if m.Requests != nil {
		return r, r.checkSeveral()
	}
	// Which of the requests a response belongs to is known to the service only.
	if d.IsStreamingClient() && d.IsStreamingServer() {
		return nil, errors.New("both of its sides stream, which cannot be translated: discontinue it, or serve it by hand")
	}
	r.now = t.cfg.New.Methods().ByName(protoreflect.Name(m.New))
	switch {
	case r.now == nil:
		return nil, fmt.Errorf("%s has no method %q: say what replaces it, or that it is discontinued", t.cfg.New.FullName(), m.New)
	case r.now.IsStreamingClient() != d.IsStreamingClient() || r.now.IsStreamingServer() != d.IsStreamingServer():
		return nil, fmt.Errorf("%s streams differently", m.New)
	}
	var err error
	// Roles depend on the resource, and all later checks depend on the roles.
	if r.resource, err = t.resourceOf(d, m); err != nil {
		return nil, err
	}
	if r.from, err = rolesOf(d.Input(), r.resource, true, m.OldRoles); err != nil {
		return nil, err
	}
	if r.to, err = rolesOf(r.now.Input(), r.resource, false, m.NewRoles); err != nil {
		return nil, err
	}
	if err := r.checkRequest(); err != nil {
		return nil, err
	}
	if r.updates() {
		r.complement = t.complement(r.resource)
		// Without mask and without read, fields outside the client's mask would be overwritten.
		if r.Request == nil && r.from.UpdateMask != "" && r.to.UpdateMask == "" && r.complement == nil {
			return nil, fmt.Errorf("%s has no update mask, and %s no method to read what exists: parts cannot be updated", r.now.Input().FullName(), t.cfg.New.FullName())
		}
	}
	return r, r.checkResponse()
}

// resourceOf returns the resource of a method's request, or nil if there is none. It fails if two
// are possible.
func (t *Table) resourceOf(d protoreflect.MethodDescriptor, m Method) (*Resource, error) {
	if m.Resource != "" {
		for _, r := range t.cfg.Resources {
			if string(r.Old.FullName()) == m.Resource || string(r.Old.Name()) == m.Resource {
				return r, nil
			}
		}
		return nil, fmt.Errorf("resource %s is not in the table", m.Resource)
	}
	// The only resource of a table needs no sign in the method.
	if len(t.cfg.Resources) == 1 {
		return t.cfg.Resources[0], nil
	}
	var found *Resource
	for _, r := range t.cfg.Resources {
		if holds(d.Input(), r.Old) || d.Output() == r.Old || holds(d.Output(), r.Old) || trailing(string(d.Name()), string(r.Old.Name())) {
			// A guess would translate names by the wrong resource.
			if found != nil {
				return nil, fmt.Errorf("it can be about %s or %s: name its Resource", found.Old.Name(), r.Old.Name())
			}
			found = r
		}
	}
	return found, nil
}

// uses reports whether a method of the service takes or returns the message, directly or in a
// field.
func uses(s protoreflect.ServiceDescriptor, d protoreflect.MessageDescriptor) bool {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		if m.Input() == d || m.Output() == d || holds(m.Input(), d) || holds(m.Output(), d) {
			return true
		}
	}
	return false
}

// holds reports whether a message has a field, or a list, of another message.
func holds(d, of protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() == of && !fd.IsMap() {
			return true
		}
	}
	return false
}

// trailing reports whether a method's name is a verb followed by the resource, or its plural.
func trailing(method, resource string) bool {
	for _, suffix := range []string{resource, resource + "s"} {
		if len(method) > len(suffix) && method[len(method)-len(suffix):] == suffix {
			return true
		}
	}
	return false
}

// complement returns a route to the new method that reads a resource by name, or nil.
func (t *Table) complement(res *Resource) *route {
	for i := range t.cfg.New.Methods().Len() {
		d := t.cfg.New.Methods().Get(i)
		if !IsRead(d) || d.IsStreamingServer() || d.IsStreamingClient() || d.Output() != res.New && singular(d.Output(), res.New) == nil {
			continue
		}
		// A method qualifies only if its request carries the name of the record.
		roles, err := rolesOf(d.Input(), res, false, Roles{})
		if err == nil && roles.Name != "" {
			return &route{now: d, to: roles, resource: res}
		}
	}
	return nil
}
