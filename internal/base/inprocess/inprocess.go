// Package inprocess lets a client call an http.Handler of its own process like a server: without a
// connection, HTTP serialisation or a port.
//
// A handler uses it to serve one API through another one, with the ordinary generated clients of
// Connect and gRPC. The inner handler's context carries the values of the caller's context. It
// therefore also carries the outer request's pass through the write gate.
//
// Guarantees. A request arrives as by HTTP/2: ProtoMajor is 2, both directions stream at the same
// time, and trailers are declared or use http.TrailerPrefix. Headers are delivered at the handler's
// first write or flush. Each write blocks until the client reads it, so a slow client slows the
// handler and nothing is buffered. The body ends after the handler has returned. If the client
// cancels the request or closes the response body, the handler's context is cancelled and its
// writes fail. A handler's panic reaches the client as a *PanicError, and no other goroutine. The
// Reporter of the caller's context gets it as well, because the client may drop the error.
//
// Memory. If the caller's context has a share of a listener's memory, the handler's request counts
// there, next to the request that the caller handles: its messages are encoded and decoded again.
// Once the handler has read its whole body, only the messages count.
//
// The package does not bound how long a handler runs after cancellation. It does not compress, limit
// anything else or log, and offers no hijacking, connection deadlines or server push. Begin to read at
// Client.
package inprocess

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"runtime/debug"

	"dbcontroller.dev/internal/base/memory"
)

// Client returns a client that sends each request to h, whatever its address. It follows no
// redirects.
func Client(h http.Handler) *http.Client {
	return &http.Client{
		Transport:     transport{h},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// PanicError is the client's error after a panic of the handler. Its text is fixed, because it may
// reach a user, and the value may hold record data.
type PanicError struct {
	Value any
	Stack []byte // of the handler's goroutine
}

func (e *PanicError) Error() string { return "the handler panicked" }

// Reporter receives the panics that this process turns into errors. It is called in the goroutine
// of the panic.
type Reporter func(*PanicError)

type reporterKey struct{}

// WithReporter returns a context with which calls report their panics to r.
func WithReporter(ctx context.Context, r Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, r)
}

// Report passes the panic in err, if there is one, to the Reporter of the context. Call it once for
// each panic that was recovered.
func Report(ctx context.Context, err error) {
	crashed := new(PanicError)
	if r, ok := ctx.Value(reporterKey{}).(Reporter); ok && errors.As(err, &crashed) {
		r(crashed)
	}
}

// errClosed is the handler's error for writes after the client closed the response.
var errClosed = errors.New("client closed the response")

type transport struct{ handler http.Handler }

var _ http.RoundTripper = transport{}

// RoundTrip runs the handler in its own goroutine, and returns once the handler sends headers.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	w := newResponseWriter(req, writer)
	// A handler blocked in Write, or a client blocked in a read, would not notice that the context
	// ended. The first to close the pipe wins, so a complete body stays complete.
	stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer cancel()
		defer stop()
		in, release := received(ctx, req)
		defer release()
		err := t.serve(w, in)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // a handler that stops early leaves an incomplete body
		}
		w.finish(err)
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		// Both may have happened. Headers that were sent must not be lost to a late cancellation.
		select {
		case <-w.ready: // the headers came first; a read of the body reports the rest
		default:
			cancel()
			return nil, context.Cause(ctx)
		}
	}
	if w.failed != nil {
		return nil, w.failed
	}
	w.response.Body = body{reader, cancel, w}
	return w.response, nil
}

// serve runs the handler until it returns or panics.
func (t transport) serve(w http.ResponseWriter, req *http.Request) (err error) {
	defer req.Body.Close() //nolint:errcheck // the client's end of it cannot fail
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler: //nolint:errorlint // the very value, as net/http compares it
			err = io.ErrUnexpectedEOF
		default:
			err = &PanicError{Value: p, Stack: debug.Stack()}
			Report(req.Context(), err)
		}
	}()
	t.handler.ServeHTTP(w, req)
	return nil
}

// received returns the request in the form that a server sees, and a function that gives back its
// memory.
func received(ctx context.Context, req *http.Request) (in *http.Request, release func()) {
	in = req.Clone(ctx)
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "inprocess"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	in.URL.Scheme, in.URL.Host, in.URL.User = "", "", nil
	if in.Header == nil {
		in.Header = http.Header{}
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	share := memory.Of(ctx)
	if share == nil || in.Body == http.NoBody {
		return in, func() {}
	}
	// The client still has the message that the handler decodes again.
	b := memory.NewBody(in.Body, in.Header, share.Hold(), math.MaxUint32)
	in.Body = requestBody{b}
	return in, b.End
}

// requestBody is a request's body that counts as memory of the request that the client handles.
type requestBody struct{ *memory.Body }

func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.Body.Read(p)
	// A handler looks for the end of the body after it has decoded the last message. A watch lives
	// long from there on.
	if n == 0 && errors.Is(err, io.EOF) {
		b.Settle()
	}
	return n, err
}

// body is a response body. Closing it early cancels the request.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
	w      *responseWriter
}

// Read adds the trailers to the response at the end of the body, in the client's goroutine.
func (b body) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	if errors.Is(err, io.EOF) {
		maps.Copy(b.w.response.Trailer, b.w.trailer)
	}
	return n, err
}

func (b body) Close() error {
	b.cancel()
	return b.CloseWithError(errClosed)
}
