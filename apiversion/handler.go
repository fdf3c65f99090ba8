package apiversion

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/internal/base/dynproto"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/refusal"
)

// Options configures NewHandler. The zero value is valid for a table without Method.Requests.
type Options struct {
	// Observers see every translation, in the request's goroutine and in this order.
	Observers []Observer
	// ObserverFailed receives errors and panics of observers. Nil discards them.
	ObserverFailed func(error)
	// Caller names the client of a request, for observers. Nil means ProductOf.
	Caller func(*http.Request) string
	// Together runs do so that all its writes commit, or none. Pass the result of vrunner.Join for
	// the store that the new handlers use. Tables with Method.Requests need it. It may run do
	// several times.
	Together func(ctx context.Context, do func(ctx context.Context) error) error
	// Handler holds options for every served procedure, such as interceptors (Once) and limits.
	Handler []connect.HandlerOption
}

// served holds the state that all procedures of a handler share.
type served struct {
	opts Options
	next *http.Client
}

// NewHandler serves the procedures of the table's old service by calling next, the handler of the
// new service. next may be a handler of Connect or of grpc-go. Other paths get 404.
//
// NewHandler panics if a method has Requests and opts.Together is nil, so that the first test finds
// the mistake.
func NewHandler(t *Table, next http.Handler, opts Options) http.Handler {
	if opts.Caller == nil {
		opts.Caller = ProductOf
	}
	s := &served{opts: opts, next: inprocess.Client(next)}
	mux := http.NewServeMux()
	for _, r := range t.routes {
		if r.Requests != nil && opts.Together == nil {
			panic(fmt.Sprintf("apiversion: method %s has Requests: set Options.Together, so that all of them are written or none", r.Method.Old))
		}
		mux.Handle(Procedure(r.old), r.handler(s))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Connect handlers see no http.Request, so the caller travels in the context.
		ctx := context.WithValue(req.Context(), callerKey{}, opts.Caller(req))
		mux.ServeHTTP(w, req.WithContext(ctx))
	})
}

type callerKey struct{}

// handler returns the handler of one procedure.
func (r *route) handler(s *served) http.Handler {
	options := append([]connect.HandlerOption{
		dynproto.Codec(), connect.WithSchema(r.old),
		connect.WithIdempotency(idempotency(r.old)),
		connect.WithRequestInitializer(initialize(r.old.Input())),
		connect.WithCompressMinBytes(limits.CompressBytes),
	}, s.opts.Handler...)
	procedure := Procedure(r.old)
	switch {
	case r.Requests != nil:
		return r.several(s, options)
	case r.now == nil:
		return r.discontinued(s, options)
	case r.old.IsStreamingClient():
		return connect.NewClientStreamHandler(procedure, func(ctx context.Context, in *connect.ClientStream[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
			return r.upload(ctx, s, in)
		}, options...)
	case r.old.IsStreamingServer():
		client := newClient(s.next, r.now)
		return connect.NewServerStreamHandler(procedure, func(ctx context.Context, req *connect.Request[dynamicpb.Message], out *connect.ServerStream[dynamicpb.Message]) error {
			return r.call(ctx, s, req.Msg).stream(ctx, client, req.Header(), out)
		}, options...)
	default:
		client := newClient(s.next, r.now)
		return connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
			return r.call(ctx, s, req.Msg).unary(ctx, client, req.Header())
		}, options...)
	}
}

// discontinued returns a handler that refuses every call with the declared advice.
func (r *route) discontinued(s *served, options []connect.HandlerOption) http.Handler {
	refuse := func(ctx context.Context, old *dynamicpb.Message) error {
		err := refusal.New(refusal.MethodDiscontinued, fmt.Errorf("%s is discontinued: %s", r.old.FullName(), r.Discontinued),
			refusal.MetaMethod, string(r.old.FullName()))
		e := Event{What: Request, Err: err}
		if old != nil {
			e.Old = old
		}
		r.call(ctx, s, old).notify(ctx, e)
		return err
	}
	procedure := Procedure(r.old)
	type message = dynamicpb.Message
	// The handler must have the procedure's stream type. Otherwise the client gets a protocol error
	// and not the advice.
	switch {
	case r.old.IsStreamingClient() && r.old.IsStreamingServer():
		return connect.NewBidiStreamHandler(procedure, func(ctx context.Context, _ *connect.BidiStream[message, message]) error { return refuse(ctx, nil) }, options...)
	case r.old.IsStreamingClient():
		return connect.NewClientStreamHandler(procedure, func(ctx context.Context, _ *connect.ClientStream[message]) (*connect.Response[message], error) {
			return nil, refuse(ctx, nil)
		}, options...)
	case r.old.IsStreamingServer():
		return connect.NewServerStreamHandler(procedure, func(ctx context.Context, req *connect.Request[message], _ *connect.ServerStream[message]) error {
			return refuse(ctx, req.Msg)
		}, options...)
	default:
		return connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
			return nil, refuse(ctx, req.Msg)
		}, options...)
	}
}

type client = connect.Client[dynamicpb.Message, dynamicpb.Message]

// newClient makes a client of an in-process procedure. It speaks gRPC, which handlers of Connect
// and of grpc-go both understand. It does not compress, since nothing leaves the process.
func newClient(next *http.Client, m protoreflect.MethodDescriptor) *client {
	return connect.NewClient[dynamicpb.Message, dynamicpb.Message](next, "http://inprocess"+Procedure(m),
		connect.WithGRPC(), connect.WithSchema(m), connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithIdempotency(idempotency(m)), connect.WithResponseInitializer(initialize(m.Output())))
}

// initialize sets the message type of the empty dynamic messages that connect makes.
func initialize(d protoreflect.MessageDescriptor) func(connect.Spec, any) error {
	return func(_ connect.Spec, msg any) error {
		m, ok := msg.(*dynamicpb.Message)
		if !ok {
			return fmt.Errorf("a %T cannot be a %s", msg, d.FullName())
		}
		*m = *dynamicpb.NewMessage(d)
		return nil
	}
}

// call makes the state of one request.
func (r *route) call(ctx context.Context, s *served, old *dynamicpb.Message) *call {
	caller, _ := ctx.Value(callerKey{}).(string)
	return &call{route: r, served: s, caller: caller, old: old}
}

// notify completes an event and passes it to the observers.
func (c *call) notify(ctx context.Context, e Event) {
	if len(c.opts.Observers) == 0 {
		return
	}
	e.Procedure, e.Caller = Procedure(c.route.old), c.caller
	if c.route.now != nil {
		e.Served = Procedure(c.route.now)
	}
	// The transaction may run again. Events of an attempt that is rolled back must not reach
	// observers.
	if c.later != nil {
		*c.later = append(*c.later, e)
		return
	}
	notify(ctx, c.opts.Observers, c.opts.ObserverFailed, e)
}

func (c *call) record(ctx context.Context, old, now proto.Message, err error) {
	c.notify(ctx, Event{What: Record, Old: old, New: now, Err: err})
}

// begin translates the request and reports the translation to observers.
func (c *call) begin(ctx context.Context, header http.Header) (*connect.Request[dynamicpb.Message], error) {
	err := c.translate(ctx)
	e := Event{What: Request, Old: c.old, New: c.now, Err: err}
	// A failed translation leaves a partial message, which observers must not take for a request.
	if err != nil {
		e.New = nil
		inprocess.Report(ctx, err) // a converter panicked
	}
	c.notify(ctx, e)
	if err != nil {
		return nil, err
	}
	req := connect.NewRequest(c.now)
	copyHeader(req.Header(), header)
	return req, nil
}

// end translates a response or a message of a stream. err is the error that the new handler
// returned instead.
func (c *call) end(ctx context.Context, now *dynamicpb.Message, err error) (*dynamicpb.Message, error) {
	e := Event{What: Response}
	var old *dynamicpb.Message
	if err != nil {
		err = c.clientError(err)
	} else {
		e.New = now
		if old, err = c.respond(ctx, now); err == nil {
			e.Old = old
		}
		inprocess.Report(ctx, err) // a converter panicked
	}
	e.Err = err
	c.notify(ctx, e)
	return old, err
}

// attempts limits how often an update is retried because another client changed the resource.
const attempts = 10

func (c *call) unary(ctx context.Context, cl *client, header http.Header) (*connect.Response[dynamicpb.Message], error) {
	var resp *connect.Response[dynamicpb.Message]
	var err error
	for range attempts {
		var req *connect.Request[dynamicpb.Message]
		if req, err = c.begin(ctx, header); err != nil {
			return nil, err
		}
		resp, err = cl.CallUnary(ctx, req)
		// With its own etag the client decides about a conflict. Otherwise begin reads the resource
		// again and applies the edit to its new state.
		if connect.CodeOf(err) != connect.CodeAborted || !c.rereads {
			break
		}
	}
	if err != nil {
		_, err = c.end(ctx, nil, err)
		return nil, err
	}
	old, err := c.end(ctx, resp.Msg, nil)
	if err != nil {
		return nil, err
	}
	out := connect.NewResponse(old)
	copyHeader(out.Header(), resp.Header())
	copyHeader(out.Trailer(), resp.Trailer())
	return out, nil
}

func (c *call) stream(ctx context.Context, cl *client, header http.Header, out *connect.ServerStream[dynamicpb.Message]) error {
	req, err := c.begin(ctx, header)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	in, err := cl.CallServerStream(inner, req)
	if err != nil {
		cancel()
		_, err = c.end(ctx, nil, err)
		return err
	}
	c.now = nil // the new handler has its own copy, and a watch lives long
	defer func() {
		cancel() // before Close, which would wait for the rest of the stream
		_ = in.Close()
	}()
	for first := true; in.Receive(); first = false {
		// Headers go out with the first message, so they must be set before it.
		if first {
			copyHeader(out.ResponseHeader(), in.ResponseHeader())
		}
		old, err := c.end(ctx, in.Msg(), nil)
		if err != nil {
			return err
		}
		if err := out.Send(old); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		_, err = c.end(ctx, nil, err)
		return err
	}
	copyHeader(out.ResponseTrailer(), in.ResponseTrailer())
	return nil
}

// read calls the method that returns the present state of a resource, for an update.
func (c *call) read(ctx context.Context, req *dynamicpb.Message) (*dynamicpb.Message, error) {
	resp, err := newClient(c.next, c.complement.now).CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	if resp.Msg.Descriptor() != c.complement.now.Output() {
		return nil, errors.New("the read answered with another message")
	}
	return resp.Msg, nil
}
