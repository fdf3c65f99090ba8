// Package inprocess lets a client call an http.Handler of its own process as if it were
// a server: no connection, no serialisation of HTTP, no port.
//
// What it is for: a handler that serves one API by calling another one, with the ordinary
// generated clients of Connect and gRPC. The context of the call reaches the handler with
// its values, so that what the outer request carries (the write gate's pass) is there in
// the inner one.
//
// Guarantees. A request arrives as HTTP/2 would bring it: ProtoMajor 2, both directions
// streaming at the same time, trailers declared or with http.TrailerPrefix. Headers are
// delivered at the handler's first write or flush, and each write when the client reads
// it: a client that does not read holds the handler back, and nothing is kept for it. The
// end of the body comes after the handler has returned. Cancelling the request, or closing
// the body of its response, cancels the handler's context and fails its writes. A panic of
// the handler reaches the client as a *PanicError and no other goroutine.
//
// It does not bound how long a handler runs after it was cancelled, does not compress,
// limit or log, and does not offer hijacking, deadlines of connections or server push.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
)

// Client returns a client all of whose requests are served by h, whatever their address.
// It follows no redirects.
func Client(h http.Handler) *http.Client {
	return &http.Client{
		Transport:     transport{h},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// PanicError is what a client gets of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte // of the handler's goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// errClosed is what the writes of a handler get after its client has gone.
var errClosed = errors.New("client closed the response")

type transport struct{ handler http.Handler }

var _ http.RoundTripper = transport{}

// RoundTrip runs the handler in a goroutine of its own, and returns at its headers.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	w := newResponseWriter(req, writer)
	// A handler that waits in Write, and a client that waits for it, would not see that the
	// context has ended. What closes the pipe first counts, so a complete body stays one.
	stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer cancel()
		defer stop()
		err := t.serve(w, received(ctx, req))
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // what a handler ends with for that reason is no complete body
		}
		w.finish(err)
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		select {
		case <-w.ready: // it came first; the body tells the rest
		default:
			cancel()
			return nil, context.Cause(ctx)
		}
	}
	if w.failed != nil {
		return nil, w.failed
	}
	w.response.Body = body{reader, cancel}
	return w.response, nil
}

// serve runs the handler to its end.
func (t transport) serve(w http.ResponseWriter, req *http.Request) (err error) {
	defer req.Body.Close() //nolint:errcheck // the client's end of it cannot fail
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler: //nolint:errorlint // the very value, as net/http compares it
			err = io.ErrUnexpectedEOF
		default:
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	t.handler.ServeHTTP(w, req)
	return nil
}

// received is the request as a server sees it.
func received(ctx context.Context, req *http.Request) *http.Request {
	in := req.Clone(ctx)
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
	return in
}

// body is that of a response; to close it early is to cancel the request.
type body struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b body) Close() error {
	b.cancel()
	return b.CloseWithError(errClosed)
}
