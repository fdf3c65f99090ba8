package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/raced"
)

func init() { raced.DrawFewer() }

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
	broken  chan error  // of streams that had no end
	arrived chan string // the books of streams
}

type contextKey struct{}

func newLibrary(s protoreflect.ServiceDescriptor) *library {
	return &library{service: s, books: map[string]*message{}, changed: make(chan struct{}), broken: make(chan error, 10), arrived: make(chan string, 100)}
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
	case "BatchGetBooks":
		to := out.Mutable(m.Output().Fields().ByName("books")).List()
		names := get(req, "names").List()
		for i := range names.Len() {
			b := l.books[names.Get(i).String()]
			if b == nil {
				return nil, notFound(names.Get(i).String())
			}
			to.Append(protoreflect.ValueOfMessage(proto.CloneOf(b).ProtoReflect()))
		}
		return out, nil
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

// imports creates the books of a stream, after its end. receive returns nil there.
func (l *library) imports(ctx context.Context, m protoreflect.MethodDescriptor, header http.Header, receive func() (*message, error)) (*message, error) {
	var books []*message
	for {
		req, err := receive()
		if err != nil {
			l.broken <- err
			return nil, err
		}
		if req == nil {
			break
		}
		b := get(req, "book").Message().Interface().(*message)
		if get(b, l.titleField()).String() == "" {
			return nil, listing.Invalid("book."+l.titleField(), "must not be empty")
		}
		books = append(books, b)
		l.arrived <- get(b, "name").String()
	}
	l.mu.Lock()
	l.seen, l.value = header, ctx.Value(contextKey{})
	l.mu.Unlock()
	l.add(books...)
	out := dynamicpb.NewMessage(m.Output())
	put(out, "created", int64(len(books)))
	return out, nil
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
