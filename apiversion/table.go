package apiversion

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Config declares how a service of the old version is served by one of the new.
type Config struct {
	Old, New  protoreflect.ServiceDescriptor
	Resources []*Resource
	// Methods pairs the methods. A method of the old service that is not in there is
	// served by the one of the same name; if there is none, the table is incomplete.
	Methods []Method
}

// Method declares what became of a method.
type Method struct {
	Old, New string
	// Discontinued tells the client what to do instead; New is empty then.
	Discontinued string
	// Resource names the message of the old version whose names a request carries, where
	// that does not follow from the resource in the request or response, the name of the
	// method, or there being only one.
	Resource string
	// Roles of request fields that do not have the usual names.
	OldRoles, NewRoles Roles
	// RequestFields and ResponseFields pair fields, old to new, that mean the same under
	// different names.
	RequestFields, ResponseFields map[string]string
	// Unset are fields of the old response for which the new one has nothing.
	Unset []string
	// OpaqueTokens means that page tokens are not those of package listing and pass as they
	// are: they are then good for one version only, unless the service sees to it.
	OpaqueTokens bool

	// Request makes the new request instead of the derived translation. It can call derive
	// for the fields that it does not handle itself.
	Request func(ctx context.Context, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error
	// Response makes the old response likewise, and every message of a stream.
	Response func(ctx context.Context, oldRequest, now proto.Message, old *dynamicpb.Message, derive func(handled ...string) error) error
	// Requests makes any number of new requests of one old one, in place of New, and Responses
	// the old response of theirs, in the same order. They are made one after the other, each
	// sees what those before it wrote, and all is written at once, or nothing is, whichever of
	// them is refused (Options.Together). They may be made again when others have changed what
	// they write. In the table's Reverse nothing is served by them.
	Requests  func(ctx context.Context, old proto.Message) ([]Call, error)
	Responses func(ctx context.Context, old proto.Message, now []proto.Message, out *dynamicpb.Message) error
	// ReverseRequest and ReverseResponse are used by Table.Reverse.
	ReverseRequest  func(ctx context.Context, now proto.Message, old *dynamicpb.Message, derive func(handled ...string) error) error
	ReverseResponse func(ctx context.Context, newRequest, old proto.Message, now *dynamicpb.Message, derive func(handled ...string) error) error
}

// Table is a checked Config.
type Table struct {
	cfg    Config
	routes []*route
}

// route is how one old method is served.
type route struct {
	Method
	service   protoreflect.ServiceDescriptor // the new one
	old, now  protoreflect.MethodDescriptor  // now is nil for a discontinued one, and for one of several requests
	resource  *Resource                      // that the request is about; may be nil
	resources []*Resource
	from, to  Roles
	// complement reads the resource of an update in its present state; nil if the new
	// service cannot.
	complement *route
	response   []responseField
	whole      *Resource // the old response is a resource itself
}

// NewTable checks the declaration against the services and returns it ready for use.
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
			if !uses(side.service, side.message) {
				return nil, fmt.Errorf("table: no method of %s has a %s in its request or response", side.service.FullName(), side.message.FullName())
			}
		}
		t.cfg.Resources = append(t.cfg.Resources, checked)
	}
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

// Path is where the handler of the old service is mounted.
func (t *Table) Path() string { return "/" + string(t.cfg.Old.FullName()) + "/" }

// Reverse returns the table that serves the new version by the old one. Methods that the
// old version does not have, and those with a Request or Response but no function for the
// reverse, are discontinued in it: they return an error that the upgrade must be completed
// first.
func (t *Table) Reverse() (*Table, error) {
	cfg := Config{Old: t.cfg.New, New: t.cfg.Old}
	for _, r := range t.cfg.Resources {
		cfg.Resources = append(cfg.Resources, r.Reverse())
	}
	const notYet = "it is available once the upgrade to this version is completed"
	for i := range t.cfg.New.Methods().Len() {
		name := string(t.cfg.New.Methods().Get(i).Name())
		at := slices.IndexFunc(t.routes, func(r *route) bool { return r.now != nil && r.New == name })
		if at < 0 {
			cfg.Methods = append(cfg.Methods, Method{Old: name, Discontinued: notYet})
			continue
		}
		m := t.routes[at].Method
		if m.Request != nil && m.ReverseRequest == nil || m.Response != nil && m.ReverseResponse == nil {
			cfg.Methods = append(cfg.Methods, Method{Old: name, Discontinued: notYet})
			continue
		}
		back := Method{
			Old: m.New, New: m.Old, OldRoles: m.NewRoles, NewRoles: m.OldRoles, OpaqueTokens: m.OpaqueTokens,
			RequestFields: invert(m.RequestFields), ResponseFields: invert(m.ResponseFields),
			Request: m.ReverseRequest, Response: m.ReverseResponse, ReverseRequest: m.Request, ReverseResponse: m.Response,
		}
		if t.routes[at].resource != nil {
			back.Resource = string(t.routes[at].resource.New.FullName())
		}
		back.Unset = onlyThere(t.routes[at].now.Output(), t.routes[at].old.Output(), back.ResponseFields)
		cfg.Methods = append(cfg.Methods, back)
	}
	return NewTable(cfg)
}

func invert(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

// onlyThere are the fields of a that b does not have: a newer response has more fields.
func onlyThere(a, b protoreflect.MessageDescriptor, pairs map[string]string) []string {
	var out []string
	for i := range a.Fields().Len() {
		fd := a.Fields().Get(i)
		if _, paired := pairs[string(fd.Name())]; !paired && fd.Message() == nil && b.Fields().ByName(fd.Name()) == nil {
			out = append(out, string(fd.Name()))
		}
	}
	return out
}

// route checks one method.
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
	if d.IsStreamingClient() {
		return nil, errors.New("its client streams, which cannot be translated: discontinue it, or serve it by hand")
	}
	r.now = t.cfg.New.Methods().ByName(protoreflect.Name(m.New))
	switch {
	case r.now == nil:
		return nil, fmt.Errorf("%s has no method %q: say what replaces it, or that it is discontinued", t.cfg.New.FullName(), m.New)
	case r.now.IsStreamingClient() || r.now.IsStreamingServer() != d.IsStreamingServer():
		return nil, fmt.Errorf("%s streams differently", m.New)
	}
	var err error
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
		if r.Request == nil && r.from.UpdateMask != "" && r.to.UpdateMask == "" && r.complement == nil {
			return nil, fmt.Errorf("%s has no update mask, and %s no method to read what exists: parts cannot be updated", r.now.Input().FullName(), t.cfg.New.FullName())
		}
	}
	return r, r.checkResponse()
}

// resourceOf finds the resource that a method's request is about.
func (t *Table) resourceOf(d protoreflect.MethodDescriptor, m Method) (*Resource, error) {
	if m.Resource != "" {
		for _, r := range t.cfg.Resources {
			if string(r.Old.FullName()) == m.Resource || string(r.Old.Name()) == m.Resource {
				return r, nil
			}
		}
		return nil, fmt.Errorf("resource %s is not in the table", m.Resource)
	}
	if len(t.cfg.Resources) == 1 {
		return t.cfg.Resources[0], nil
	}
	var found *Resource
	for _, r := range t.cfg.Resources {
		if holds(d.Input(), r.Old) || d.Output() == r.Old || holds(d.Output(), r.Old) || trailing(string(d.Name()), string(r.Old.Name())) {
			if found != nil {
				return nil, fmt.Errorf("it can be about %s or %s: name its Resource", found.Old.Name(), r.Old.Name())
			}
			found = r
		}
	}
	return found, nil
}

// uses reports whether a service's methods take or return a message.
func uses(s protoreflect.ServiceDescriptor, d protoreflect.MessageDescriptor) bool {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		if m.Input() == d || m.Output() == d || holds(m.Input(), d) || holds(m.Output(), d) {
			return true
		}
	}
	return false
}

// holds reports whether a message has a field, or a list, of another.
func holds(d, of protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() == of && !fd.IsMap() {
			return true
		}
	}
	return false
}

// trailing reports whether a method's name ends in that of a resource, after a verb.
func trailing(method, resource string) bool {
	for _, suffix := range []string{resource, resource + "s"} {
		if len(method) > len(suffix) && method[len(method)-len(suffix):] == suffix {
			return true
		}
	}
	return false
}

// complement finds the method of the new service that reads a resource by its name.
func (t *Table) complement(res *Resource) *route {
	for i := range t.cfg.New.Methods().Len() {
		d := t.cfg.New.Methods().Get(i)
		if !IsRead(d) || d.IsStreamingServer() || d.IsStreamingClient() || d.Output() != res.New && singular(d.Output(), res.New) == nil {
			continue
		}
		roles, err := rolesOf(d.Input(), res, false, Roles{})
		if err == nil && roles.Name != "" {
			return &route{now: d, to: roles, resource: res}
		}
	}
	return nil
}
