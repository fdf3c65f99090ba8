package apiversion

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// upload serves a client's stream. It translates one message after the other, so a stream of any length
// takes the memory of one. The first message that cannot be translated ends the stream: the new handler
// gets an error in its place, and never takes the messages before for a complete stream.
func (r *route) upload(ctx context.Context, s *served, in *connect.ClientStream[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
	next := &whole{next: s.next.Transport}
	inner, cancel := context.WithCancel(ctx)
	// Both directions at once: a handler that answers early does not read the rest.
	out := newClient(&http.Client{Transport: next}, r.now).CallBidiStream(inner)
	copyHeader(out.RequestHeader(), in.RequestHeader())
	answers := make(chan received, 1)
	go receiveOne(out, answers)
	defer func() {
		cancel()
		_ = out.CloseResponse()
	}()
	// The answer and its errors are translated with the names of the latest message.
	last := r.call(ctx, s, dynamicpb.NewMessage(r.old.Input()))
	for in.Receive() {
		last = r.call(ctx, s, in.Msg())
		req, err := last.begin(ctx, nil)
		if err != nil {
			return nil, err
		}
		if out.Send(req.Msg) != nil {
			break // the handler has ended early, and its answer says why
		}
	}
	if err := in.Err(); err != nil {
		return nil, err // the client has gone, or sent something else
	}
	next.sent.Store(true)
	_ = out.CloseRequest() // its error comes with the answer
	answer := <-answers
	if answer.err != nil {
		_, err := last.end(ctx, nil, answer.err)
		return nil, err
	}
	old, err := last.end(ctx, answer.msg, nil)
	if err != nil {
		return nil, err
	}
	res := connect.NewResponse(old)
	copyHeader(res.Header(), out.ResponseHeader())
	copyHeader(res.Trailer(), out.ResponseTrailer())
	return res, nil
}

// received is the answer of a client-streaming procedure.
type received struct {
	msg *dynamicpb.Message
	err error
}

// receiveOne receives the only message of a stream.
func receiveOne(from *connect.BidiStreamForClient[dynamicpb.Message, dynamicpb.Message], to chan<- received) {
	msg, err := from.Receive()
	if err == nil {
		// The end of the stream may have an error, too.
		if _, err = from.Receive(); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	to <- received{msg, err}
}

// whole is the transport of one stream. Its body ends with an error unless all messages were sent: a
// client that is cancelled closes a body like one that has sent everything.
type whole struct {
	next http.RoundTripper
	sent atomic.Bool
}

func (w *whole) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Body = wholeBody{req.Body, w}
	return w.next.RoundTrip(req)
}

type wholeBody struct {
	io.ReadCloser
	of *whole
}

func (b wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.of.sent.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
