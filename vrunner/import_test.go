package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

const importPath = "/test.Service/Import"

type (
	count        = wrapperspb.Int64Value
	importClient = connect.Client[text, count]
	importStream = connect.ClientStreamForClient[text, count]
)

// importStack writes a record for each message, and counts them. begun is called with each message, if
// it is not nil.
func importStack(begun func(name string)) func(string, map[string]*vrunner.View) vrunner.Stack {
	return func(version string, views map[string]*vrunner.View) vrunner.Stack {
		return vrunner.Stack{
			Handler: connect.NewClientStreamHandler(importPath, func(ctx context.Context, in *connect.ClientStream[text]) (*connect.Response[count], error) {
				n := int64(0)
				for in.Receive() {
					name := in.Msg().GetValue()
					if begun != nil {
						begun(name)
					}
					switch name {
					case "bad":
						return nil, refusal.New(refusal.Refused, errors.New("a bad name"))
					case "away": // as of another service that the handler calls
						err := connect.NewError(connect.CodeUnavailable, errors.New("somebody is away"))
						err.Meta().Set("Retry-After", "1")
						return nil, err
					case "panic":
						panic("a value")
					case "unknown":
						return nil, refusal.New(refusal.OutcomeUnknown, errors.New("it may be written"))
					}
					if err := views[version].Write(ctx, []record.Mutation{{Kind: kindOf[version], Key: record.StringKey(name), Doc: doc(name, version), Absent: true}}); err != nil {
						return nil, fmt.Errorf("write: %w", err)
					}
					n++
				}
				res := connect.NewResponse(wrapperspb.Int64(n))
				res.Header().Set("Version", version)
				res.Header().Set("Caller", in.RequestHeader().Get("Caller"))
				return res, in.Err()
			}),
			Write: func(*http.Request) bool { return true },
		}
	}
}

func addCount(total, part *count) error { total.Value += part.GetValue(); return nil }

func newImport(r *vrunner.Runner) http.Handler {
	_, h := vrunner.NewImportHandler[text](r, vrunner.ImportProcedure[count]{Procedure: importPath, Add: addCount})
	return h
}

func begin(ctx context.Context, c *importClient, names ...string) *importStream {
	s := c.CallClientStream(ctx)
	s.RequestHeader().Set("Caller", "test")
	sendAll(s, names...)
	return s
}

// sendAll sends messages. The error of a stream that has ended comes with its answer.
func sendAll(s *importStream, names ...string) {
	for _, name := range names {
		_ = s.Send(wrapperspb.String(name))
	}
}

// TestImportOverFlips: clients of every protocol keep one stream over a switch and back. A message goes
// to the version that is active then, once, and the client gets one answer.
func TestImportOverFlips(t *testing.T) {
	t.Parallel()
	for backend, make := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx, w := t.Context(), make(t)
			r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{ID: "server"}, nil)
			streams := map[string]*importStream{}
			for name, e := range endpoints(t, r, newImport(r)) {
				streams[name] = begin(ctx, connect.NewClient[text, count](e.client, e.url+importPath, e.opts...))
			}
			each := func(what string) {
				for name, s := range streams {
					sendAll(s, name+" "+what, name+" "+what+" too")
				}
			}
			stored := func(version string, whats ...string) func() bool {
				return func() bool {
					have := w.stored(ctx, version, kindOf[version])
					for name := range streams {
						for _, what := range whats {
							if !strings.Contains(have, name+" "+what+" too") {
								return false
							}
						}
					}
					return true
				}
			}
			flip := func(id, target string, during func()) {
				w.apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: target, TransformHash: "h"}})
				w.apply(ctx, upgradestate.Begin{ID: id, TargetVersion: target})
				w.until(ctx, at(upgradestate.StepHold))
				eventually(t, "the hold", func() bool { return !r.GateOpen() })
				during()
				w.until(ctx, open(target))
			}
			each("before")
			eventually(t, "v1 has them", stored("v1", "before"))
			flip("u1", "v2", func() { each("held") })
			each("after")
			eventually(t, "v2 has them", stored("v2", "held", "after"))
			flip("u2", "v1", func() {})
			each("back")
			for name, s := range streams {
				res, err := s.CloseAndReceive()
				if err != nil || res.Msg.GetValue() != 8 || res.Header().Get("Version") != "v1" || res.Header().Get("Caller") != "test" {
					t.Errorf("%s: %v, %v", name, res, err)
				}
			}
			if !stored("v1", "before", "back")() {
				t.Errorf("v1 has %s", w.stored(ctx, "v1", "old"))
			}
		})
	}
}

// importing runs a server in simulated time.
func importing(ctx context.Context, w *world, begun func(string)) (*vrunner.Runner, *importClient) {
	r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), importStack(begun), vrunner.Config{}, nil)
	return r, connect.NewClient[text, count](inprocess.Client(newImport(r)), "http://inprocess"+importPath)
}

func ended(t *testing.T, what string, s *importStream, code connect.Code, reason refusal.Reason, done, part string) {
	t.Helper()
	_, err := s.CloseAndReceive()
	coded := new(connect.Error)
	if !errors.As(err, &coded) {
		t.Fatalf("%s: %v", what, err)
	}
	if got, _ := refusal.Of(err); coded.Code() != code || got != reason || coded.Meta().Get(vrunner.DoneHeader) != done || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v (%s), reason %q, %q done; want %s, %q, %s done, and %q", what, err, coded.Code(), got, coded.Meta().Get(vrunner.DoneHeader), code, reason, done, part)
	}
	// Nothing may make a client repeat messages that were done.
	if again, pushback := coded.Meta().Get("Retry-After"), coded.Meta().Get("Grpc-Retry-Pushback-Ms"); done > "0" && (again != "" || pushback != "-1") {
		t.Errorf("%s: %s messages were done, and Retry-After is %q, the pushback %q", what, done, again, pushback)
	}
}

// TestImportEnds: an error in the middle ends the stream, and says how much was done. What permits to
// repeat a call does not permit to repeat messages that were done.
func TestImportEnds(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		_, c := importing(ctx, w, nil)
		ended(t, "a bad message", begin(ctx, c, "a", "b", "bad"), connect.CodeInvalidArgument, refusal.Refused, "2", "after 2 messages that are done: a bad name")
		ended(t, "a bad first message", begin(ctx, c, "bad"), connect.CodeInvalidArgument, refusal.Refused, "0", "invalid_argument: a bad name")
		if got := w.stored(ctx, "v1", "old"); got != "a b" {
			t.Errorf("there are %s", got)
		}
		ended(t, "somebody is away", begin(ctx, c, "c", "away"), connect.CodeAborted, refusal.PartlyDone, "1", "after 1 messages that are done: somebody is away")
		ended(t, "somebody is away at first", begin(ctx, c, "away"), connect.CodeUnavailable, "", "0", "unavailable: somebody is away")
		ended(t, "a panic", begin(ctx, c, "g", "panic"), connect.CodeInternal, "", "1", "after 1 messages that are done: the handler panicked")
		ended(t, "a panic at first", begin(ctx, c, "panic"), connect.CodeInternal, "", "0", "internal: the handler panicked")
		ended(t, "an unknown outcome", begin(ctx, c, "h", "unknown"), connect.CodeUnavailable, refusal.OutcomeUnknown, "1", "after 1 messages that are done: it may be written")
		if res, err := begin(ctx, c).CloseAndReceive(); err != nil || res.Msg.GetValue() != 0 || res.Header().Get("Version") != "v1" {
			t.Errorf("an empty stream: %v, %v", res, err)
		}

		one, gone := context.WithCancel(ctx)
		going, first, leaves := begin(ctx, c, "d"), begin(ctx, c), begin(one, c)
		synctest.Wait()
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		// The switch takes longer than a write may wait.
		sendAll(going, "e")
		sendAll(first, "f")
		sendAll(leaves, "left")
		synctest.Wait()
		gone() // while its message is held
		if _, err := leaves.CloseAndReceive(); connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("a client that has gone: %v", err)
		}
		ended(t, "held", going, connect.CodeAborted, refusal.PartlyDone, "1", "after 1 messages that are done")
		ended(t, "held at first", first, connect.CodeUnavailable, refusal.Held, "0", "try again")
		w.until(ctx, open("v2"))
		synctest.Wait()
		if one, two := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); one != "a b c d g h" || two != "" {
			t.Errorf("v1 has %q, v2 has %q", one, two)
		}
	})
}

// TestImportOfLargeMessages: a message that is larger than a request may be ends the stream, whatever
// the client still sends.
func TestImportOfLargeMessages(t *testing.T) {
	t.Parallel()
	const most = 1000
	ctx, w := t.Context(), newWorld(t.Context(), t, plain)
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{ID: "server", MaxBody: most}, nil)
	for name, e := range endpoints(t, r, newImport(r)) {
		// The second one is too large only with the prefix that each message of a stream has.
		for what, size := range map[string]int{"too large": 2 * most, "too large by its prefix": most - 5} {
			s := begin(ctx, connect.NewClient[text, count](e.client, e.url+importPath, e.opts...), name+" "+what, strings.Repeat("x", size), "after")
			ended(t, name+" "+what, s, connect.CodeResourceExhausted, "", "1", "after 1 messages that are done")
		}
	}
	if got := w.stored(ctx, "v1", "old"); strings.Contains(got, "xx") || strings.Contains(got, "after") {
		t.Errorf("there are %s", got)
	}
}

// crashing is a codec that panics.
type crashing struct{ connect.Codec }

func (crashing) Name() string                { return "proto" }
func (crashing) Unmarshal([]byte, any) error { panic("it cannot be decoded") }

// TestImportThatPanics: a panic over what a client sends ends its request, and not the server.
func TestImportThatPanics(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{}, nil)
		_, h := vrunner.NewImportHandler[text](r, vrunner.ImportProcedure[count]{Procedure: importPath, Add: addCount}, connect.WithCodec(crashing{}))
		c := connect.NewClient[text, count](inprocess.Client(h), "http://inprocess"+importPath)
		if _, err := begin(ctx, c, "a").CloseAndReceive(); err == nil || !strings.Contains(err.Error(), "the handler panicked") {
			t.Error(err)
		}
	})
}

// TestImportCannotAdd: a message is done even if its answer cannot be added to those before.
func TestImportCannotAdd(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{}, nil)
		_, h := vrunner.NewImportHandler[text](r, vrunner.ImportProcedure[count]{Procedure: importPath, Add: func(_, _ *count) error { return errors.New("unknown field") }})
		c := connect.NewClient[text, count](inprocess.Client(h), "http://inprocess"+importPath)
		ended(t, "two messages", begin(ctx, c, "a", "b"), connect.CodeInternal, "", "2", "unknown field")
		if got := w.stored(ctx, "v1", "old"); got != "a b" {
			t.Errorf("there are %s", got)
		}
	})
}

// TestIdleImport: an import that waits for its client holds up no switch, ends with its client, and
// ends when the server stops.
func TestIdleImport(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		r, c := importing(ctx, w, nil)
		one, gone := context.WithCancel(ctx)
		left, stays, fresh := begin(one, c, "a"), begin(ctx, c, "b"), begin(ctx, c)
		_ = fresh.Send(nil) // the headers
		// It hangs in the middle of a message.
		body, hangs := io.Pipe()
		half, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://inprocess"+importPath, body)
		if err != nil {
			t.Fatal(err)
		}
		half.Header.Set("Content-Type", "application/connect+proto")
		answer := make(chan string, 1)
		go func() {
			res, err := inprocess.Client(newImport(r)).Do(half)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body) // what there is of it
			answer <- string(text)
		}()
		_, _ = hangs.Write([]byte("\x00\x00\x00\x00\x09half")) // of nine bytes
		synctest.Wait()
		w.flip(ctx, "u1", "v2")
		sendAll(stays, "c")
		synctest.Wait()
		if one, two := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); one != "a b" || two != "c" {
			t.Errorf("v1 has %q, v2 has %q", one, two)
		}
		gone()
		if _, err := left.CloseAndReceive(); connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("a client that has gone: %v", err)
		}
		r.EndStreams()
		if got := <-answer; !strings.Contains(got, "server stops") {
			t.Errorf("half a message: %q", got)
		}
		ended(t, "a server that stops", stays, connect.CodeAborted, refusal.PartlyDone, "2", "server stops")
		ended(t, "a server that stops, and nothing was done", fresh, connect.CodeUnavailable, refusal.Stopping, "0", "server stops")
		ended(t, "a server that has stopped", begin(ctx, c), connect.CodeUnavailable, refusal.Stopping, "", "server stops")
		if got := w.stored(ctx, "v2", "new"); got != "c" {
			t.Errorf("v2 has %s", got)
		}
	})
}

// TestIdleImportOverHTTP: a connection whose client sends nothing does not keep a server from stopping.
func TestIdleImportOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Context(), t, plain)
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{ID: "server"}, nil)
	returned := make(chan struct{}, 10)
	inner := newImport(r)
	all := map[string]*importStream{}
	for name, e := range endpoints(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() { returned <- struct{}{} }()
		inner.ServeHTTP(w, req)
	})) {
		all[name] = begin(t.Context(), connect.NewClient[text, count](e.client, e.url+importPath, e.opts...), name)
	}
	eventually(t, "one message of each", func() bool { return len(strings.Fields(w.stored(t.Context(), "v1", "old"))) == 7 }) // two names have a space
	r.EndStreams()
	for range all {
		<-returned
	}
	for name, s := range all {
		// The server may have closed a connection of HTTP/1 before the client reads the answer.
		if _, err := s.CloseAndReceive(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRestingImport: a listener ends a stream whose next message does not come in time, and the client
// learns how many messages were done.
func TestRestingImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Context(), t, plain)
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{ID: "server"}, nil)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(ctx) }() // ends with its context
	t.Cleanup(func() { stop(); <-stopped })
	eventually(t, "ready", func() bool { return r.Ready() == nil })
	inner, returned := newImport(r), make(chan struct{}, 2)
	listener := refusing{
		path: importPath, door: door.Config{BodyTime: time.Second, BodyBytes: 1 << 20, BodiesBytes: 1 << 30},
		handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			defer func() { returned <- struct{}{} }()
			inner.ServeHTTP(w, req)
		}),
	}
	address := listener.open(t.Context(), t)
	only2 := new(http.Protocols)
	only2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: only2}
	defer transport.CloseIdleConnections()
	all := map[string]*importStream{}
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		all[name] = begin(t.Context(), connect.NewClient[text, count](&http.Client{Transport: transport}, address+importPath, opts...), name)
	}
	for range all {
		<-returned
	}
	for name, s := range all {
		done := "0" // on a slow machine its first message came too late
		if strings.Contains(w.stored(t.Context(), "v1", "old"), name) {
			done = "1"
		}
		ended(t, name, s, connect.CodeDeadlineExceeded, "", done, "the next message did not come in time")
	}
}

// TestFastImport: a client is read no faster than its messages are done.
func TestFastImport(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		release := make(chan struct{})
		var begun, sent atomic.Int64
		_, c := importing(ctx, w, func(string) { begun.Add(1); <-release })
		const messages = 100
		s := begin(ctx, c)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range messages {
				sendAll(s, fmt.Sprint("m", i))
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if begun.Load() != 1 || sent.Load() > 1 {
			t.Errorf("%d messages were sent while the first is not done, %d were begun", sent.Load(), begun.Load())
		}
		close(release)
		<-done
		if res, err := s.CloseAndReceive(); err != nil || res.Msg.GetValue() != messages {
			t.Errorf("%v, %v", res, err)
		}
	})
}

// TestImportKeepsItsMemory: what a listener counts for the body of an import stays counted between its
// messages, and nothing more.
func TestImportKeepsItsMemory(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		const room, body = 1 << 20, 1000
		budget := memory.NewBudget(room)
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), importStack(nil), vrunner.Config{}, nil)
		h := newImport(r)
		c := connect.NewClient[text, count](inprocess.Client(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			share := budget.Share(room)
			defer share.End()
			share.Reserve(body)
			h.ServeHTTP(w, req.WithContext(memory.With(req.Context(), share)))
		})), "http://inprocess"+importPath)
		s := begin(ctx, c)
		for _, name := range []string{"a", "b"} {
			sendAll(s, name)
			synctest.Wait()
			if left := budget.Left(); left != room-body {
				t.Errorf("after %s %d bytes are counted, want %d", name, room-left, body)
			}
		}
		if _, err := s.CloseAndReceive(); err != nil || budget.Left() != room {
			t.Errorf("%v, %d bytes are left", err, budget.Left())
		}
	})
}
