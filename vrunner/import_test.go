package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
					if name == "bad" {
						return nil, refusal.New(refusal.Refused, errors.New("a bad name"))
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
		if res, err := begin(ctx, c).CloseAndReceive(); err != nil || res.Msg.GetValue() != 0 || res.Header().Get("Version") != "v1" {
			t.Errorf("an empty stream: %v, %v", res, err)
		}

		going, first := begin(ctx, c, "d"), begin(ctx, c)
		synctest.Wait()
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		// The switch takes longer than a write may wait.
		sendAll(going, "e")
		sendAll(first, "f")
		ended(t, "held", going, connect.CodeAborted, refusal.PartlyDone, "1", "after 1 messages that are done")
		ended(t, "held at first", first, connect.CodeUnavailable, refusal.Held, "0", "try again")
		if got := w.stored(ctx, "v1", "old"); got != "a b d" {
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
