package vrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/refusal"
)

// DoneHeader is in the metadata of the error that ends an import. It has the number of messages that
// were done before it.
const DoneHeader = "Dbcontroller-Messages-Done"

// pushback is the header that keeps retry policies of gRPC from a retry, whatever the code
// (refusal.New).
const pushback = "Grpc-Retry-Pushback-Ms"

// ImportProcedure describes a client-streaming procedure each of whose messages is a write of its own.
type ImportProcedure[Res any] struct {
	Procedure string // the path, "/secrets.v1.SecretService/ImportSecrets"
	// Add adds the response to one message to total, the response to the messages before it.
	Add func(total, part *Res) error
	// Client holds options for the calls of the Runner. It is needed if Res is not a generated message.
	Client []connect.ClientOption
}

// NewImportHandler returns the handler of a procedure and its path. Mount it in front of the Runner. It
// calls the procedure once for each message of a client's stream, through the Runner, with a stream of
// this message alone. The client's answer is the sum of the answers. An empty stream is one call
// without a message.
//
// So a stream has no length limit, and the next message is read when the previous one is done. A
// message is a write like any other: a switch holds it, and it runs on the version that is active then.
// Between two messages a stream holds up no switch.
//
// The first error ends the stream. Its metadata has DoneHeader. If other messages were done before it,
// nothing in the error permits to repeat the whole call: UNAVAILABLE becomes a refusal.PartlyDone. A
// client that ends the stream may find its last message done or not.
//
// Without this handler, the Runner runs a client's stream as one write: it keeps all of it, up to
// Config.MaxBody.
func NewImportHandler[Req, Res any](r *Runner, p ImportProcedure[Res], opts ...connect.HandlerOption) (path string, h http.Handler) {
	if p.Add == nil {
		panic("vrunner: import of " + p.Procedure + " has no Add") // as a mux does
	}
	client := connect.NewClient[Req, Res](inprocess.Client(r), "http://inprocess"+p.Procedure,
		append([]connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)}, p.Client...)...) // no gain in a process
	opts = append([]connect.HandlerOption{connect.WithReadMaxBytes(int(r.cfg.MaxBody)), connect.WithCompressMinBytes(limits.CompressBytes)}, opts...)
	inner := connect.NewClientStreamHandler(p.Procedure, func(ctx context.Context, in *connect.ClientStream[Req]) (*connect.Response[Res], error) {
		stop, end, err := r.beginImport()
		if err != nil {
			return nil, unavailable(err)
		}
		defer end()
		i := importing[Req, Res]{procedure: p, client: client, in: in, stop: stop}
		if err := i.run(ctx); err != nil {
			return nil, i.failed(ctx, err)
		}
		return i.total, nil
	}, opts...)
	return p.Procedure, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// A read of the client's next message ends by a deadline only.
		rc := http.NewResponseController(w)
		ctx := context.WithValue(req.Context(), interruptKey{}, func() error { return rc.SetReadDeadline(time.Now()) })
		inner.ServeHTTP(w, req.WithContext(ctx))
	})
}

// interruptKey is the context key of the function that ends a read of an import's next message.
type interruptKey struct{}

// imported reports whether a request is a message of an import, whose body outlives the request.
func imported(ctx context.Context) bool { return ctx.Value(interruptKey{}) != nil }

// beginImport registers an import. stop ends with the server. Unlike a stream of Stream, an import goes
// on over flips.
func (r *Runner) beginImport() (stop context.Context, end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, nil, errStopped
	}
	req := &request{lasting: true}
	stop, cancel := context.WithCancelCause(context.Background())
	r.streams[req] = cancel
	return stop, func() { r.endStream(req) }, nil
}

// importing is one client's import.
type importing[Req, Res any] struct {
	procedure ImportProcedure[Res]
	client    *connect.Client[Req, Res]
	in        *connect.ClientStream[Req]
	stop      context.Context
	done      int // messages
	total     *connect.Response[Res]
}

func (i *importing[Req, Res]) run(ctx context.Context) error {
	for {
		there, err := i.receive(ctx)
		switch {
		case err != nil:
			return err
		case !there && i.total != nil:
			return nil
		case !there:
			return i.message(ctx, nil) // the handlers decide about an empty stream
		}
		if err := i.message(ctx, i.in.Msg()); err != nil {
			return err
		}
	}
}

// apart runs f in a goroutine of its own, and sends its panic, or nil. The caller panics with it: only
// the goroutine of a request can panic without the end of the server.
func apart(f func()) <-chan any {
	crashed := make(chan any, 1)
	go func() {
		defer func() { crashed <- recover() }()
		f()
	}()
	return crashed
}

// errLate ends an import for which the listener has waited long enough.
var errLate = errors.New("the next message did not come in time")

// receive waits for the client's next message. It returns false at the end of the stream.
func (i *importing[Req, Res]) receive(ctx context.Context) (bool, error) {
	var there bool
	received := apart(func() { there = i.in.Receive() })
	over := i.stop
	select {
	case crash := <-received:
		if crash != nil {
			panic(crash)
		}
		err := i.in.Err()
		if connect.CodeOf(err) == connect.CodeDeadlineExceeded && ctx.Err() == nil {
			err = connect.NewError(connect.CodeDeadlineExceeded, errLate)
		}
		return there, err
	case <-over.Done():
	// The time of the client is over, or the listener has ended the request. A read sees neither.
	case <-ctx.Done():
		over = ctx
	}
	// The message that the client may be sending was not begun, so it is not lost to the client.
	interrupt, _ := ctx.Value(interruptKey{}).(func() error)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		// A body may set a deadline of its own when the read begins, so one time is not enough.
		if interrupt() != nil {
			return false, context.Cause(over) // nothing to end: not a connection of net/http
		}
		select {
		case <-received:
			return false, context.Cause(over)
		case <-again.C:
		}
	}
}

// message runs the procedure for one message, or for none.
func (i *importing[Req, Res]) message(ctx context.Context, m *Req) error {
	// Both directions at once: a Runner that refuses a message does not read it.
	call := i.client.CallBidiStream(ctx)
	passHeaders(call.RequestHeader(), i.in.RequestHeader())
	sent := apart(func() {
		defer call.CloseRequest() //nolint:errcheck // the error of a stream that ended early comes with its answer
		if m != nil {
			_ = call.Send(m)
		}
	})
	part, err := call.Receive()
	if err == nil {
		// The end of the stream may have an error, too.
		if _, err = call.Receive(); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	_ = call.CloseResponse()
	if crash := <-sent; crash != nil {
		panic(crash)
	}
	if err != nil {
		return err
	}
	if m != nil {
		i.done++
	}
	if i.total == nil {
		i.total = connect.NewResponse(part)
	} else if err := i.procedure.Add(i.total.Msg, part); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("answer of %s: %w", i.procedure.Procedure, err))
	}
	// The version that served the latest message is among them.
	passHeaders(i.total.Header(), call.ResponseHeader())
	passHeaders(i.total.Trailer(), call.ResponseTrailer())
	return nil
}

// failed returns the error that the client gets.
func (i *importing[Req, Res]) failed(ctx context.Context, err error) error {
	was := i.coded(ctx, err)
	text := errors.New(was.Message())
	if i.done > 0 {
		text = fmt.Errorf("after %d messages that are done: %w", i.done, text)
	}
	var out *connect.Error
	switch reason, _ := refusal.Of(was); {
	case reason == refusal.OutcomeUnknown:
		out = refusal.New(reason, text)
	// A client must not repeat the whole call: the messages before were done. The code alone makes
	// clients do that, also without a reason.
	case i.done > 0 && was.Code() == connect.CodeUnavailable:
		out = refusal.New(refusal.PartlyDone, text)
	default:
		out = connect.NewError(was.Code(), text)
		for _, d := range was.Details() {
			out.AddDetail(d)
		}
	}
	passHeaders(out.Meta(), was.Meta())
	if i.done > 0 {
		out.Meta().Del("Retry-After")
		out.Meta().Set(pushback, "-1")
	}
	out.Meta().Set(DoneHeader, strconv.Itoa(i.done))
	return out
}

// coded returns err with its code for the client.
func (i *importing[Req, Res]) coded(ctx context.Context, err error) *connect.Error {
	// The panic was reported where it happened. Its value may hold record data.
	if crashed := new(inprocess.PanicError); errors.As(err, &crashed) {
		return connect.NewError(connect.CodeInternal, crashed)
	}
	// A listener may end the request with its answer as the cause. The client must not take that for a
	// cancellation of its own.
	if answer := new(connect.Error); ctx.Err() != nil && errors.As(context.Cause(ctx), &answer) {
		return answer
	}
	if answer, ok := refusal.In(err); ok {
		return answer
	}
	was := new(connect.Error)
	switch {
	case errors.As(err, &was):
		return was
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		return connect.NewError(connect.CodeInternal, err)
	}
}
