package vrunner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/inprocess"
	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/limits"
	"dbcontroller.dev/refusal"
)

// WatchProcedure describes a server-streaming procedure whose streams go on over a flip.
//
// The procedure's handlers, in the stack of each version, keep this protocol: a stream
// begins with the initial state, one EventPut for each record; then comes one EventLevel;
// then an EventPut for each record that was made or changed and an EventDelete for each
// that was deleted. A handler that gets ErrLost, or any error at a flip, returns it.
type WatchProcedure[Res any] struct {
	Procedure string // the path, "/bbs.v2.LRPDeploymentService/WatchLRPDeployments"
	// Event returns what a message means. Without it messages are passed on as they are,
	// and the stream ends at a flip with UNAVAILABLE.
	Event func(*Res) (Event, error)
	// Deleted makes the message which reports that a record is gone: it was sent to the
	// client before a flip and was not there after it.
	Deleted func(name string) *Res
	// MaxNames bounds what a stream remembers: for each record that the client has, its
	// name and 16 bytes, some 100 bytes in addition to the name. A stream of more records
	// than that, or of names of more than 256 bytes on average, or that finds no room next to
	// other requests, goes on, and ends at the next flip with UNAVAILABLE. Until then its client
	// may receive a Put once more, and a Delete of a record that it never had. 0: 100,000.
	MaxNames int
	// Client are options of the calls to the stacks, where Res is not a generated message.
	Client []connect.ClientOption
}

// Event is the meaning of one message of a watch.
type Event struct {
	Type EventType
	Name string // of the record, for EventPut and EventDelete
}

// EventType is the type of an Event.
type EventType int

// The types of events. An enum of a service's messages that has the same numbers can be
// converted.
const (
	EventOther  EventType = iota // passed on as it is
	EventPut                     // the record now is as in the message
	EventDelete                  // the record is gone
	EventLevel                   // the initial state is complete
)

// NewWatchHandler returns the handler of a procedure, and the path to mount it at, in
// front of the Runner. For each client it calls the procedure in the stack of the active
// version, in the same process, and passes the messages on. At a flip it calls the next
// stack, which sends its initial state again: the client gets only what differs from what
// it has, and a deletion of what is gone, and sees one stream. A Put that equals the latest
// one of its name is not sent again.
//
// Headers of the request reach the handlers, those of the first response the client. The
// handlers see a request of the Connect protocol, whatever the client speaks.
func NewWatchHandler[Req, Res any](r *Runner, p WatchProcedure[Res], opts ...connect.HandlerOption) (path string, h http.Handler) {
	if p.Event != nil && p.Deleted == nil {
		panic("vrunner: watch of " + p.Procedure + " has Event and no Deleted") // as a mux refuses a pattern
	}
	if p.MaxNames <= 0 {
		p.MaxNames = 100_000
	}
	clients := map[string]*connect.Client[Req, Res]{}
	for version, stack := range r.stacks {
		clients[version] = connect.NewClient[Req, Res](inprocess.Client(stack.Handler), "http://inprocess"+p.Procedure,
			append([]connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)}, p.Client...)...) // nothing is saved within a process
	}
	opts = append([]connect.HandlerOption{connect.WithReadMaxBytes(int(r.cfg.MaxBody)), connect.WithCompressMinBytes(limits.CompressBytes)}, opts...)
	return p.Procedure, connect.NewServerStreamHandler(p.Procedure,
		func(ctx context.Context, req *connect.Request[Req], out *connect.ServerStream[Res]) error {
			if m, ok := any(req.Msg).(proto.Message); ok {
				memory.Of(ctx).Settle(int64(proto.Size(m))) // a watch lives long
			}
			w := &watch[Res]{procedure: p, out: out, told: told{max: p.MaxNames, held: memory.Of(ctx).Hold()}}
			err := r.Stream(ctx, func(ctx context.Context, version string) error {
				if err := w.begin(); err != nil {
					return err
				}
				call := connect.NewRequest(req.Msg)
				passHeaders(call.Header(), req.Header())
				err := w.pump(clients[version].CallServerStream(ctx, call))
				if err == nil && ctx.Err() != nil {
					return context.Cause(ctx) // a handler that ends without an error when it must
				}
				return err
			})
			if ended := new(endedError); errors.As(err, &ended) {
				return ended.error // it is the client's that failed, not a server's
			}
			return err
		}, opts...)
}

// endedError is an error of the client's side of a watch.
type endedError struct{ error }

// watch is one client's stream.
type watch[Res any] struct {
	procedure WatchProcedure[Res]
	out       *connect.ServerStream[Res]
	told      told
	started   bool // a stack was called
	caughtUp  bool // the client was sent the end of the initial state
}

// errTooLarge and errNoWatch end streams that cannot be carried over a flip, or a loss.
var (
	errTooLarge = refusal.Because(refusal.StreamEnded, "the stream has too many records to go on, after a switch, with what differs; watch again", nil)
	errNoWatch  = refusal.Because(refusal.StreamEnded, "the stream cannot go on after a switch; call again", nil)
)

// begin prepares for another stack's stream.
func (w *watch[Res]) begin() error {
	switch {
	case !w.started:
		w.started = true
		return nil
	case w.procedure.Event == nil:
		return unavailable(errNoWatch)
	case w.told.overflow:
		return unavailable(errTooLarge)
	}
	w.told.restart()
	return nil
}

// pump passes a stack's messages on to its end.
func (w *watch[Res]) pump(in *connect.ServerStreamForClient[Res], err error) (out error) {
	if err != nil {
		return err
	}
	defer func() {
		// The error that Receive has returned is the reason; this only ends the handler.
		_ = in.Close()
	}()
	for in.Receive() {
		passHeaders(w.out.ResponseHeader(), in.ResponseHeader()) // no-op once they are sent
		if err := w.message(in.Msg()); err != nil {
			return err
		}
	}
	passHeaders(w.out.ResponseTrailer(), in.ResponseTrailer())
	return in.Err()
}

// message sends what the client does not know yet.
func (w *watch[Res]) message(m *Res) error {
	if w.procedure.Event == nil {
		return w.send(m)
	}
	ev, err := w.procedure.Event(m)
	if err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("event of %s: %w", w.procedure.Procedure, err))
	}
	switch ev.Type {
	case EventPut:
		news, err := w.told.put(ev.Name, m)
		if err != nil {
			return connect.NewError(connect.CodeInternal, err)
		}
		if !news {
			return nil
		}
	case EventDelete:
		if !w.told.remove(ev.Name) {
			return nil
		}
	case EventLevel:
		for _, name := range w.told.gone() {
			if err := w.send(w.procedure.Deleted(name)); err != nil {
				return err
			}
		}
		if w.caughtUp {
			return nil
		}
		w.caughtUp = true
	case EventOther:
	}
	return w.send(m)
}

func (w *watch[Res]) send(m *Res) error {
	if err := w.out.Send(m); err != nil {
		return &endedError{err}
	}
	return nil
}

// passHeaders copies what is not part of a protocol.
func passHeaders(to, from http.Header) {
	for name, values := range from {
		if !ofProtocol(name) {
			to[name] = values
		}
	}
}

func ofProtocol(name string) bool {
	for _, prefix := range []string{"Connect-", "Grpc-", "X-Grpc-", "Content-", "Accept", "Trailer"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "Connection", "Keep-Alive", "Transfer-Encoding", "Te", "Upgrade", "Host", "Date", "X-User-Agent":
		return true
	default:
		return false
	}
}
