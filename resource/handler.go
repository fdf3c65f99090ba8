package resource

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/dynproto"
	"dbcontroller.dev/internal/base/limits"
)

// Service describes the handlers of the methods of a service.
type Service struct {
	Descriptor protoreflect.ServiceDescriptor
	// Tables serve the standard methods of their resources: CreateBook, GetBook, BatchGetBooks, ListBooks,
	// SearchBooks, UpdateBook, DeleteBook and WatchBooks. The request and the response must have the fields of
	// such a method. The response is the resource itself, or has one field for it.
	Tables []Standard
	// Own is the service's own handler. It serves all other methods and those in Except. Nil means
	// that there is none.
	Own http.Handler
	// Except names the methods that Own serves although a table could.
	Except []string
	// Options apply to the methods that tables serve.
	Options []connect.HandlerOption
}

// Standard is a Table of any message type.
type Standard interface {
	// serve returns how the table serves a method. It returns nil if the table does not serve it.
	serve(m protoreflect.MethodDescriptor) *method
}

// method serves one method of a service. Exactly one of unary and stream is set.
type method struct {
	unary  func(ctx context.Context, req proto.Message) (proto.Message, error)
	stream func(ctx context.Context, req proto.Message, send func(proto.Message) error) error
}

// NewHandler returns the handler of a service and its path. It panics if a method has no handler or
// Except names an unknown method, so that every test of the service finds the mistake.
func NewHandler(s Service) (path string, h http.Handler) {
	mux := http.NewServeMux()
	path = "/" + string(s.Descriptor.FullName()) + "/"
	// A mux prefers the longer pattern, so methods of tables take precedence over Own.
	if s.Own != nil {
		mux.Handle(path, s.Own)
	}
	except := map[protoreflect.Name]bool{}
	for _, name := range s.Except {
		if s.Descriptor.Methods().ByName(protoreflect.Name(name)) == nil {
			panic(fmt.Sprintf("resource: %s has no method %s, which Except names", s.Descriptor.FullName(), name))
		}
		except[protoreflect.Name(name)] = true
	}
	for i := range s.Descriptor.Methods().Len() {
		m := s.Descriptor.Methods().Get(i)
		var served *method
		// The first table that can serve the method does.
		for _, t := range s.Tables {
			if served == nil && !except[m.Name()] {
				served = t.serve(m)
			}
		}
		switch {
		case served != nil:
			mux.Handle(apiversion.Procedure(m), served.handler(m, s.Options))
		case s.Own == nil:
			panic(fmt.Sprintf("resource: %s is no standard method of a table: write it, and set Own", m.FullName()))
		}
	}
	return path, mux
}

func (s *method) handler(m protoreflect.MethodDescriptor, opts []connect.HandlerOption) http.Handler {
	if s.stream != nil {
		return connect.NewServerStreamHandler(apiversion.Procedure(m), func(ctx context.Context, req *connect.Request[envelope], out *connect.ServerStream[envelope]) error {
			return apiversion.CodeError(s.stream(ctx, req.Msg.Message, func(res proto.Message) error { return out.Send(&envelope{res}) }))
		}, methodOptions(m, opts)...)
	}
	return connect.NewUnaryHandler(apiversion.Procedure(m), func(ctx context.Context, req *connect.Request[envelope]) (*connect.Response[envelope], error) {
		res, err := s.unary(ctx, req.Msg.Message)
		return apiversion.Respond(&envelope{res}, err)
	}, methodOptions(m, opts)...)
}

// methodOptions returns the options of a method whose messages are envelopes.
func methodOptions(m protoreflect.MethodDescriptor, opts []connect.HandlerOption) []connect.HandlerOption {
	// Connect serves a method without side effects over GET only if the handler knows its level.
	level := connect.IdempotencyUnknown
	if o, ok := m.Options().(*descriptorpb.MethodOptions); ok {
		level = connect.IdempotencyLevel(o.GetIdempotencyLevel())
	}
	return append([]connect.HandlerOption{
		dynproto.Codec(), connect.WithSchema(m), connect.WithIdempotency(level), connect.WithRequestInitializer(initialize(m.Input())),
		connect.WithCompressMinBytes(limits.CompressBytes),
	}, opts...)
}

func initialize(d protoreflect.MessageDescriptor) func(connect.Spec, any) error {
	return func(_ connect.Spec, msg any) error {
		e, ok := msg.(*envelope)
		if !ok {
			return fmt.Errorf("a %T cannot be a %s", msg, d.FullName())
		}
		e.Message = newMessage(d)
		return nil
	}
}

// newMessage returns a message of its generated type if the program contains it, or else a dynamic
// one.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	// A generated type of another version of the file would not match the descriptor.
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil && t.Descriptor() == d {
		return t.New().Interface()
	}
	return dynamicpb.NewMessage(d)
}

// serve recognizes the standard methods of a resource by their name, request and response.
func (t *Table[M]) serve(m protoreflect.MethodDescriptor) *method {
	if m.IsStreamingClient() {
		return nil
	}
	roles := apiversion.RequestRoles(m.Input(), t.message, t.name.Name())
	one := string(t.message.Name())
	many := one + "s"
	// An irregular plural comes from the pattern: categories, not categorys.
	if c := t.pattern.collection(); c != "" {
		many = strings.ToUpper(c[:1]) + c[1:]
	}
	is := func(names ...string) bool {
		for _, name := range names {
			if string(m.Name()) == name {
				return true
			}
		}
		return false
	}
	if m.IsStreamingServer() {
		layout, err := eventsOf(m.Output(), t.name.Name(), t.message)
		// A stream of another shape is a method of the service's own.
		if err != nil || !is("Watch"+many, "Watch"+one+"s") {
			return nil
		}
		return &method{stream: func(ctx context.Context, req proto.Message, send func(proto.Message) error) error {
			return t.Watch(ctx, req, func(e Event[M]) error {
				res := newMessage(m.Output())
				layout.write(res.ProtoReflect(), e.Type, e.Name, e.Message.ProtoReflect())
				return send(res)
			})
		}}
	}
	show, single := t.answer(m.Output())
	items := listOf(m.Output(), t.message)
	token := m.Output().Fields().ByName("next_page_token")
	answer := func(f func(context.Context, proto.Message) (M, error)) *method {
		return &method{unary: func(ctx context.Context, req proto.Message) (proto.Message, error) {
			made, err := f(ctx, req)
			if err != nil {
				return nil, err
			}
			return show(made), nil
		}}
	}
	// A method with a standard name but other fields is left to the service's own handler.
	switch {
	case is("Create"+one) && single && roles.Resource != "":
		return answer(t.Create)
	case is("Get"+one) && single && roles.Name != "":
		return answer(t.Get)
	case is("BatchGet"+many, "BatchGet"+one+"s") && roles.Names != "" && items != nil && token == nil:
		return paged(m, items, nil, func(ctx context.Context, req proto.Message) (listing.Page[M], error) {
			all, err := t.BatchGet(ctx, req)
			return listing.Page[M]{Items: all}, err
		})
	case is("Update"+one) && single && roles.Resource != "":
		return answer(t.Update)
	case is("Delete"+one) && roles.Name != "" && m.Output().Fields().Len() == 0:
		return &method{unary: func(ctx context.Context, req proto.Message) (proto.Message, error) {
			return newMessage(m.Output()), t.Delete(ctx, req)
		}}
	case is("List"+many, "List"+one+"s") && items != nil && token != nil && token.Kind() == protoreflect.StringKind:
		return paged(m, items, token, t.List)
	case is("Search"+many, "Search"+one+"s") && listing.HasQuery(m.Input()) && items != nil && token != nil && token.Kind() == protoreflect.StringKind:
		return paged(m, items, token, t.Search)
	}
	return nil
}

// paged serves a method whose response is a page of resources. A page without a next one needs no
// token.
func paged[M proto.Message](m protoreflect.MethodDescriptor, items, token protoreflect.FieldDescriptor, read func(context.Context, proto.Message) (listing.Page[M], error)) *method {
	return &method{unary: func(ctx context.Context, req proto.Message) (proto.Message, error) {
		page, err := read(ctx, req)
		if err != nil {
			return nil, err
		}
		to := newMessage(m.Output()).ProtoReflect()
		if len(page.Items) > 0 {
			list := to.Mutable(items).List()
			for _, item := range page.Items {
				list.Append(protoreflect.ValueOfMessage(item.ProtoReflect()))
			}
		}
		if page.NextPageToken != "" {
			to.Set(token, protoreflect.ValueOfString(page.NextPageToken))
		}
		return to.Interface(), nil
	}}
}

// answer returns a function that puts a resource into a response. ok is false if the response
// neither is the resource nor has exactly one field for it.
func (t *Table[M]) answer(d protoreflect.MessageDescriptor) (show func(M) proto.Message, ok bool) {
	if d == t.message {
		return func(m M) proto.Message { return m }, true
	}
	var found protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() == t.message && !fd.IsList() && !fd.IsMap() {
			// With two fields of this type the right one is unknown.
			if found != nil {
				return nil, false
			}
			found = fd
		}
	}
	return func(m M) proto.Message {
		res := newMessage(d).ProtoReflect()
		res.Set(found, protoreflect.ValueOfMessage(m.ProtoReflect()))
		return res.Interface()
	}, found != nil
}

// listOf returns the field of a response that lists resources, or nil.
func listOf(d, of protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() == of && fd.IsList() {
			return fd
		}
	}
	return nil
}
