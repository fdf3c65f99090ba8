package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller/apiversion"
	"dbcontroller/apiversion/listing"
	"dbcontroller/apiversion/prototest"
	"dbcontroller/internal/inprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type message = dynamicpb.Message

// service returns the library's service in a version.
func service(tb testing.TB, version string) protoreflect.ServiceDescriptor {
	tb.Helper()
	return prototest.File(tb, "library_"+version+".proto").Services().ByName("Library")
}

func bookOf(s protoreflect.ServiceDescriptor) protoreflect.MessageDescriptor {
	return s.ParentFile().Messages().ByName("Book")
}

func text(tb testing.TB, d protoreflect.MessageDescriptor, s string) *message {
	tb.Helper()
	m := dynamicpb.NewMessage(d)
	if err := prototext.Unmarshal([]byte(s), m); err != nil {
		tb.Fatalf("%v in %s", err, s)
	}
	return m
}

func get(m protoreflect.Message, name string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func put(m protoreflect.Message, name string, v any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
}

// library serves either version natively: both have the same methods, but for the names.
type library struct {
	service protoreflect.ServiceDescriptor

	mu      sync.Mutex
	books   map[string]*message
	changed chan struct{} // closed and replaced at each change
	version int
	seen    http.Header // of the last request
	value   any         // of contextKey in the last request
	before  func(ctx context.Context, method string) error
}

type contextKey struct{}

func newLibrary(s protoreflect.ServiceDescriptor) *library {
	return &library{service: s, books: map[string]*message{}, changed: make(chan struct{})}
}

func (l *library) add(books ...*message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range books {
		l.store(proto.CloneOf(b))
	}
}

// store keeps a book. l.mu is held.
func (l *library) store(b *message) *message {
	l.version++
	put(b, "etag", strconv.Itoa(l.version))
	l.books[get(b, "name").String()] = b
	close(l.changed)
	l.changed = make(chan struct{})
	return proto.CloneOf(b)
}

func (l *library) book(tb testing.TB, name string) *message {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.books[name] == nil {
		tb.Fatalf("there is no %s", name)
	}
	return proto.CloneOf(l.books[name])
}

func notFound(name string) error {
	err := connect.NewError(connect.CodeNotFound, fmt.Errorf("book %q is not there", name))
	if d, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: "NO_BOOK"}); detailErr == nil {
		err.AddDetail(d)
	}
	return err
}

func (l *library) titleField() string {
	if bookOf(l.service).Fields().ByName("title") != nil {
		return "title"
	}
	return "display_title"
}

// call runs a unary method.
func (l *library) call(ctx context.Context, m protoreflect.MethodDescriptor, header http.Header, req *message) (*message, error) {
	l.mu.Lock()
	l.seen, l.value = header, ctx.Value(contextKey{})
	before := l.before
	l.mu.Unlock()
	if before != nil {
		if err := before(ctx, string(m.Name())); err != nil {
			return nil, err
		}
	}
	out := dynamicpb.NewMessage(m.Output())
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.Name() {
	case "CreateBook":
		b := proto.CloneOf(get(req, "book").Message().Interface().(*message))
		if get(b, l.titleField()).String() == "" {
			return nil, listing.Invalid("book."+l.titleField(), "must not be empty")
		}
		if l.books[get(b, "name").String()] != nil {
			return nil, connect.NewError(connect.CodeAlreadyExists, errors.New("exists"))
		}
		return l.store(b), nil
	case "GetBook":
		b := l.books[get(req, "name").String()]
		if b == nil {
			return nil, notFound(get(req, "name").String())
		}
		b = proto.CloneOf(b)
		return b, listing.ApplyMask(b, listing.Mask(req, "read_mask"))
	case "ListBooks", "SearchBooks":
		return out, l.list(ctx, req, out)
	case "UpdateBook":
		edit := get(req, "book").Message().Interface().(*message)
		b := l.books[get(edit, "name").String()]
		if b == nil {
			return nil, notFound(get(edit, "name").String())
		}
		if want := get(edit, "etag").String(); want != "" && want != get(b, "etag").String() {
			return nil, connect.NewError(connect.CodeAborted, errors.New("etag has changed"))
		}
		b = proto.CloneOf(b)
		if err := listing.Update(b, edit, listing.Mask(req, "update_mask")); err != nil {
			return nil, err
		}
		return l.store(b), nil
	case "DeleteBook":
		name := get(req, "name").String()
		if l.books[name] == nil {
			return nil, notFound(name)
		}
		delete(l.books, name)
		return out, nil
	case "CheckOut", "LendBook":
		b := l.books[get(req, "name").String()]
		if b == nil {
			return nil, notFound(get(req, "name").String())
		}
		b = proto.CloneOf(b)
		put(b, "state", b.Descriptor().ParentFile().Enums().ByName("State").Values().ByName("LENT").Number())
		labels := b.Mutable(b.Descriptor().Fields().ByName("labels")).Map()
		reader := ""
		if m.Name() == "LendBook" {
			reader = get(req, "reader").String()
		} else {
			loan := get(req, "loan").Message()
			reader = fmt.Sprintf("%s for %d days", get(loan, "reader").String(), get(loan, "days").Int())
		}
		labels.Set(protoreflect.ValueOfString("reader").MapKey(), protoreflect.ValueOfString(reader))
		b = l.store(b)
		if m.Output() == b.Descriptor() {
			return b, nil
		}
		put(out, "book", b.ProtoReflect())
		return out, nil
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("no such method"))
}

func (l *library) list(ctx context.Context, req, out *message) error {
	parent := get(req, "parent").String()
	if parent != "" {
		parent += "/"
	}
	names := slices.Sorted(maps.Keys(l.books))
	field := "results"
	if out.Descriptor().Fields().ByName("books") != nil {
		field = "books"
	}
	page, err := listing.List(ctx, req, listing.Source[string, *message]{
		Fetch: func(_ context.Context, after string, limit int) ([]string, error) {
			var some []string
			for _, n := range names {
				if n > after && strings.HasPrefix(n, parent) && len(some) < limit {
					some = append(some, n)
				}
			}
			return some, nil
		},
		Name:      func(n string) (string, error) { return n, nil },
		Message:   func(_ context.Context, n string) (*message, error) { return proto.CloneOf(l.books[n]), nil },
		NameField: "name", Descriptor: bookOf(l.service),
	})
	if err != nil {
		return err
	}
	to := out.Mutable(out.Descriptor().Fields().ByName(protoreflect.Name(field))).List()
	for _, b := range page.Items {
		to.Append(protoreflect.ValueOfMessage(b))
	}
	put(out, "next_page_token", page.NextPageToken)
	return nil
}

// watch sends the books that match, and then each that is new, until the context ends.
func (l *library) watch(ctx context.Context, m protoreflect.MethodDescriptor, req *message, send func(*message) error) error {
	f, err := listing.ParseFilter(get(req, "filter").String(), bookOf(l.service))
	if err != nil {
		return err
	}
	sent := map[string]string{}
	for {
		l.mu.Lock()
		changed := l.changed
		var events []*message
		for _, name := range slices.Sorted(maps.Keys(l.books)) {
			b := l.books[name]
			if sent[name] == get(b, "etag").String() || !f.Eval(b) {
				continue
			}
			sent[name] = get(b, "etag").String()
			e := dynamicpb.NewMessage(m.Output())
			kind := e.Descriptor().Enums().ByName("Kind").Values().ByName("CHANGED").Number()
			put(e, "kind", kind)
			put(e, "name", name)
			put(e, "book", proto.CloneOf(b).ProtoReflect())
			events = append(events, e)
		}
		l.mu.Unlock()
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			if get(e, "name").String() == l.stopAt() {
				return connect.NewError(connect.CodeResourceExhausted, errors.New("enough"))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// stopAt is the book after which a watch ends with an error.
func (l *library) stopAt() string {
	if strings.HasSuffix(string(l.service.FullName()), "v2.Library") {
		return "shelves/z/floors/ground/books/stop"
	}
	return "shelves/z/books/stop"
}

// connectHandler serves the library with Connect.
func (l *library) connectHandler() http.Handler {
	mux := http.NewServeMux()
	for i := range l.service.Methods().Len() {
		m := l.service.Methods().Get(i)
		p := apiversion.Procedure(m)
		options := []connect.HandlerOption{connect.WithSchema(m), connect.WithRequestInitializer(func(_ connect.Spec, v any) error {
			*v.(*message) = *dynamicpb.NewMessage(m.Input())
			return nil
		})}
		if m.IsStreamingServer() {
			mux.Handle(p, connect.NewServerStreamHandler(p, func(ctx context.Context, req *connect.Request[message], out *connect.ServerStream[message]) error {
				out.ResponseHeader().Set("Library", "open")
				return l.watch(ctx, m, req.Msg, out.Send)
			}, options...))
			continue
		}
		mux.Handle(p, connect.NewUnaryHandler(p, func(ctx context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
			out, err := l.call(ctx, m, req.Header(), req.Msg)
			if err != nil {
				return nil, err
			}
			resp := connect.NewResponse(out)
			resp.Header().Set("Library", "open")
			resp.Trailer().Set("Closing", "soon")
			return resp, nil
		}, options...))
	}
	return mux
}

// grpcHandler serves the library with grpc-go.
func (l *library) grpcHandler() http.Handler {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	desc := grpc.ServiceDesc{ServiceName: string(l.service.FullName()), HandlerType: (*any)(nil)}
	for i := range l.service.Methods().Len() {
		m := l.service.Methods().Get(i)
		if m.IsStreamingServer() {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				req := dynamicpb.NewMessage(m.Input())
				if err := stream.RecvMsg(req); err != nil {
					return err
				}
				return grpcError(l.watch(stream.Context(), m, req, func(m *message) error { return stream.SendMsg(m) }))
			}})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: string(m.Name()), Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := dynamicpb.NewMessage(m.Input())
			if err := dec(req); err != nil {
				return nil, err
			}
			out, err := l.call(ctx, m, nil, req)
			return out, grpcError(err)
		}})
	}
	server.RegisterService(&desc, struct{}{})
	return server
}

func grpcError(err error) error {
	coded := new(connect.Error)
	if !errors.As(err, &coded) {
		return err
	}
	s := status.New(codes.Code(coded.Code()), coded.Message())
	for _, d := range coded.Details() {
		if v, err := d.Value(); err == nil {
			if with, err := s.WithDetails(protoadapt.MessageV1Of(v)); err == nil {
				s = with
			}
		}
	}
	return s.Err()
}

// client calls a service in one protocol.
type client struct {
	tb      testing.TB
	service protoreflect.ServiceDescriptor
	http    *http.Client
	url     string
	options []connect.ClientOption
}

// serve opens a server for a handler and returns a client of it.
func serve(tb testing.TB, s protoreflect.ServiceDescriptor, h http.Handler, options ...connect.ClientOption) client {
	tb.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	tb.Cleanup(server.Close)
	return client{tb, s, server.Client(), server.URL, options}
}

// direct returns a client of a handler that needs no server.
func direct(tb testing.TB, s protoreflect.ServiceDescriptor, h http.Handler) client {
	return client{tb, s, inprocess.Client(h), "http://inprocess", nil}
}

func (c client) method(name string) (protoreflect.MethodDescriptor, *connect.Client[message, message]) {
	m := c.service.Methods().ByName(protoreflect.Name(name))
	options := append([]connect.ClientOption{connect.WithSchema(m), connect.WithResponseInitializer(func(_ connect.Spec, v any) error {
		*v.(*message) = *dynamicpb.NewMessage(m.Output())
		return nil
	})}, c.options...)
	return m, connect.NewClient[message, message](c.http, c.url+apiversion.Procedure(m), options...)
}

func (c client) try(ctx context.Context, name, req string) (*message, error) {
	m, cl := c.method(name)
	resp, err := cl.CallUnary(ctx, connect.NewRequest(text(c.tb, m.Input(), req)))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func (c client) do(name, req string) *message {
	c.tb.Helper()
	out, err := c.try(c.tb.Context(), name, req)
	if err != nil {
		c.tb.Fatalf("%s: %v", name, err)
	}
	return out
}

// library resources and table

// pages converts the number of pages from text.
var pages = apiversion.Converted("pages", "page_count",
	func(x any) (any, error) {
		n, err := strconv.ParseInt(x.(string), 10, 32)
		if err != nil {
			return nil, errors.New("must be a number")
		}
		return n, nil
	},
	func(x any) (any, error) { return strconv.FormatInt(x.(int64), 10), nil })

// author splits "first last" at its last blank.
var author = apiversion.Split("author", []string{"first_name", "last_name"},
	func(x any) ([]any, error) {
		s := x.(string)
		at := strings.LastIndexByte(s, ' ')
		if at < 0 {
			return []any{"", s}, nil
		}
		return []any{s[:at], s[at+1:]}, nil
	},
	func(x []any) (any, error) {
		if x[0] == "" {
			return x[1], nil
		}
		return x[0].(string) + " " + x[1].(string), nil
	})

var rekeyed = apiversion.Rekeyed(apiversion.Names{
	Up: func(n string) (string, error) {
		shelf, book, ok := strings.Cut(n, "/books/")
		if !ok || !strings.HasPrefix(n, "shelves/") {
			return "", errors.New("names are shelves/{shelf}/books/{book}")
		}
		return shelf + "/floors/ground/books/" + book, nil
	},
	Down: func(n string) (string, error) {
		shelf, book, ok := strings.Cut(n, "/floors/ground/books/")
		if !ok {
			return "", errors.New("only the ground floor is known to v1")
		}
		return shelf + "/books/" + book, nil
	},
	ParentUp:   func(p string) (string, error) { return p + "/floors/ground", nil },
	ParentDown: func(p string) (string, error) { return strings.TrimSuffix(p, "/floors/ground"), nil },
})

func bookResource(tb testing.TB) *apiversion.Resource {
	tb.Helper()
	r, err := apiversion.Declare(bookOf(service(tb, "v1")), bookOf(service(tb, "v2")),
		apiversion.Renamed("title", "display_title"), author, pages, rekeyed,
		apiversion.Renamed("place.room", "place.hall"),
		apiversion.OnlyOld("isbn10", ""), apiversion.OnlyNew("summary", "none yet"))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func lend(ctx context.Context, old proto.Message, now *message, derive func(...string) error) error {
	loan := now.Mutable(now.Descriptor().Fields().ByName("loan")).Message()
	put(loan, "reader", get(old.ProtoReflect(), "reader").String())
	put(loan, "days", int32(14))
	return derive("reader")
}

func libraryConfig(tb testing.TB, r *apiversion.Resource) apiversion.Config {
	return apiversion.Config{
		Old: service(tb, "v1"), New: service(tb, "v2"), Resources: []*apiversion.Resource{r},
		Methods: []apiversion.Method{
			{Old: "ListBooks", New: "SearchBooks"},
			{Old: "LendBook", New: "CheckOut", Request: lend},
			{Old: "BurnBook", Discontinued: "use DeleteBook"},
		},
	}
}

func libraryTable(tb testing.TB) *apiversion.Table {
	tb.Helper()
	t, err := apiversion.NewTable(libraryConfig(tb, bookResource(tb)))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
