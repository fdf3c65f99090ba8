package vrunner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// WatchProcedure describes a server-streaming procedure whose streams continue over a flip.
//
// The handlers of the procedure, one in each version's stack, must follow this protocol. A stream
// begins with the initial state: one EventPut for each record, then one EventLevel. After that
// comes an EventPut for each created or changed record and an EventDelete for each deleted one. A
// handler returns ErrLost when it gets it, and any error that it gets at a flip.
type WatchProcedure[Res any] struct {
	Procedure string // the path, "/bbs.v2.LRPDeploymentService/WatchLRPDeployments"
	// Event returns the meaning of a message. If it is nil, the handler passes messages on
	// unchanged, and the stream ends at a flip with UNAVAILABLE.
	Event func(*Res) (Event, error)
	// Deleted returns the message for the deletion of a record that the client received before a
	// flip and that is missing after it.
	Deleted func(name string) *Res
	// MaxNames bounds the records that a stream remembers. Each takes its name, a 16-byte digest
	// and about 100 bytes. 0 means 100,000.
	//
	// A stream exceeds its bound in three cases: it has more records, its names are longer than 256
	// bytes on average, or other requests use the memory. It then continues, and ends at the next
	// flip with UNAVAILABLE. Until then its client may get a Put twice, and a Delete of an unknown
	// record.
	MaxNames int
	// Client holds options for the calls to the stacks. It is needed if Res is not a generated
	// message.
	Client []connect.ClientOption
}

// Event is the meaning of one message of a watch.
type Event struct {
	Type EventType
	Name string // of the record, for EventPut and EventDelete
}

// EventType is the type of an Event.
type EventType int

// The types of events. If the enum in a service's messages has the same numbers, a conversion of
// the number gives the EventType.
const (
	EventOther  EventType = iota // passed on unchanged
	EventPut                     // the message holds the record's present state
	EventDelete                  // the record is deleted
	EventLevel                   // the initial state is complete
)

// NewWatchHandler returns the handler of a procedure and its path. Mount it in front of the Runner.
// For each client it calls the procedure in the stack of the active version, inside the process,
// and passes the messages on. At a flip it calls the next stack, which sends its initial state. The
// client gets only the differences: changed records, and a deletion for each missing one. It sees
// one stream. A Put equal to the latest one of its name is not sent.
//
// Request headers reach the handlers, and headers of the first response reach the client. The
// handlers always see the Connect protocol. NewWatchHandler panics if p has Event without Deleted.
func NewWatchHandler[Req, Res any](r *Runner, p WatchProcedure[Res], opts ...connect.HandlerOption) (path string, h http.Handler) {
	if p.Event != nil && p.Deleted == nil {
		panic("vrunner: watch of " + p.Procedure + " has Event and no Deleted") // as a mux does
	}
	if p.MaxNames <= 0 {
		p.MaxNames = 100_000
	}
	clients := map[string]*connect.Client[Req, Res]{}
	for version, stack := range r.stacks {
		clients[version] = connect.NewClient[Req, Res](inprocess.Client(stack.Handler), "http://inprocess"+p.Procedure,
			append([]connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)}, p.Client...)...) // no gain in a process
	}
	opts = append([]connect.HandlerOption{connect.WithReadMaxBytes(int(r.cfg.MaxBody)), connect.WithCompressMinBytes(limits.CompressBytes)}, opts...)
	return p.Procedure, connect.NewServerStreamHandler(p.Procedure,
		func(ctx context.Context, req *connect.Request[Req], out *connect.ServerStream[Res]) error {
			if m, ok := any(req.Msg).(proto.Message); ok {
				memory.Of(ctx).Settle(int64(proto.Size(m))) // a watch lives long; free the request body
			}
			w := &watch[Res]{procedure: p, out: out, told: told{max: p.MaxNames, held: memory.Of(ctx).Hold()}}
			err := r.Stream(ctx, func(ctx context.Context, version string) error {
				if err := w.begin(); err != nil {
					return err
				}
				call := connect.NewRequest(req.Msg)
				passHeaders(call.Header(), req.Header())
				// The stream survives flips, but each call belongs to one stack.
				err := w.pump(clients[version].CallServerStream(ctx, call))
				if err == nil && ctx.Err() != nil {
					return context.Cause(ctx) // some handlers return nil when their context ends
				}
				return err
			})
			if ended := new(endedError); errors.As(err, &ended) {
				return ended.error // the client's connection failed, not the server
			}
			// A listener may end the request with its answer as the cause. The client must not take that
			// for a cancellation of its own.
			if answer := new(connect.Error); err != nil && ctx.Err() != nil && errors.As(context.Cause(ctx), &answer) {
				return answer
			}
			return err
		}, opts...)
}

// endedError is an error of the connection to the client.
type endedError struct{ error }

// watch is one client's stream.
type watch[Res any] struct {
	procedure WatchProcedure[Res]
	out       *connect.ServerStream[Res]
	told      told
	started   bool // a stack has been called
	caughtUp  bool // the client has received EventLevel
}

// errTooLarge and errNoWatch end streams that cannot continue after a flip or after lost changes.
var (
	errTooLarge = refusal.Because(refusal.StreamEnded, "the stream has too many records to go on, after a switch, with what differs; watch again", nil)
	errNoWatch  = refusal.Because(refusal.StreamEnded, "the stream cannot go on after a switch; call again", nil)
)

// begin prepares for the next stack's stream.
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
	// The next stack sends its initial state. Records that it does not name were deleted.
	w.told.restart()
	return nil
}

// pump passes the messages of one stack's stream on to the client.
func (w *watch[Res]) pump(in *connect.ServerStreamForClient[Res], err error) (out error) {
	if err != nil {
		return err
	}
	defer func() {
		// Close only ends the handler. The error of Receive is the one that counts.
		_ = in.Close()
	}()
	for in.Receive() {
		passHeaders(w.out.ResponseHeader(), in.ResponseHeader()) // no-op once the headers are sent
		if err := w.message(in.Msg()); err != nil {
			return err
		}
	}
	passHeaders(w.out.ResponseTrailer(), in.ResponseTrailer())
	return in.Err()
}

// message sends a message unless the client already has its content.
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
		// Deletions come before EventLevel, so that the client's state is complete at that point.
		for _, name := range w.told.gone() {
			if err := w.send(w.procedure.Deleted(name)); err != nil {
				return err
			}
		}
		// The client expects one EventLevel for each stream, also over a flip.
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

// passHeaders copies the headers that do not belong to the protocol.
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
