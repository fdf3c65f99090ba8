package vrunner_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// unreadAnswer is a client that reads nothing before it is let go on.
type unreadAnswer struct {
	*httptest.ResponseRecorder
	goOn <-chan struct{}
}

func (u unreadAnswer) Write(b []byte) (int, error) {
	<-u.goOn
	return u.ResponseRecorder.Write(b)
}

// TestSlowReadersAreBounded: responses that clients do not read count as memory. One that finds no
// room next to them is refused, and of a write it is said that it was made.
func TestSlowReadersAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{}, func(ctx context.Context, w *world, s *service, r *vrunner.Runner, _ *announced) {
		const size, body = 1000, 100
		budget := memory.NewBudget(2*size + size/2)
		goOn, now := make(chan struct{}), make(chan struct{})
		close(now)
		serve := func(req *http.Request, goOn <-chan struct{}) <-chan *httptest.ResponseRecorder {
			done := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				share := budget.Share(2*size + body)
				share.Reserve(body) // until it has run
				out := httptest.NewRecorder()
				r.ServeHTTP(unreadAnswer{out, goOn}, req.WithContext(memory.With(ctx, share)))
				share.End()
				done <- out
			}()
			synctest.Wait()
			return done
		}
		w.put(ctx, "v1", "old", "a", strings.Repeat("x", size))
		w.put(ctx, "v1", "old", "large", strings.Repeat("x", 2*size+1))
		res := expect(t, "more than a request may hold", serve(get("large"), now), http.StatusTooManyRequests, "")
		if c := code(t, res.Body.Bytes()); c != "resource_exhausted" || res.Header().Get("Retry-After") != "" {
			t.Errorf("code %s, %v: no other attempt helps", c, res.Header())
		}
		// It grows beyond what twice the first part would take, and fits.
		s.parts = 3
		w.put(ctx, "v1", "old", "nearly", strings.Repeat("x", 2*size))
		res = expect(t, "as much as a request may hold", serve(get("nearly"), now), http.StatusOK, "v1")
		if got := res.Body.String(); got != strings.Repeat("x", 2*size) {
			t.Errorf("%d bytes", len(got))
		}
		s.parts = 0
		first, second := serve(get("a"), goOn), serve(get("a"), goOn)
		expectNone(t, "the first", first)
		expectNone(t, "the second", second)
		if left := budget.Left(); left != size/2 {
			t.Errorf("%d bytes are free", left)
		}
		res = expect(t, "the third", serve(get("a"), now), http.StatusServiceUnavailable, "")
		if res.Header().Get("Retry-After") == "" {
			t.Errorf("%v", res.Header())
		}
		s.instead = func(_ string, v *vrunner.View, r *http.Request) error {
			if err := v.Write(r.Context(), []record.Mutation{{Kind: "old", Key: record.StringKey("b"), Doc: doc("b", "y")}}); err != nil {
				return err
			}
			return errors.New(strings.Repeat("x", size))
		}
		res = expect(t, "a write", serve(connectJSON(put("b", "y")), now), http.StatusServiceUnavailable, "")
		if !strings.Contains(res.Body.String(), string(refusal.OutcomeUnknown)) || res.Header().Get("Retry-After") != "" || !strings.Contains(w.stored(ctx, "v1", "old"), "b") {
			t.Errorf("%s, and %s are there", res.Body, w.stored(ctx, "v1", "old"))
		}
		close(goOn)
		expect(t, "the first", first, http.StatusOK, "v1")
		expect(t, "the second", second, http.StatusOK, "v1")
		expect(t, "afterwards", serve(get("a"), now), http.StatusOK, "v1")
		if left := budget.Left(); left != 2*size+size/2 {
			t.Errorf("%d bytes are free in the end", left)
		}
	})
}

// TestChangesWithoutRoom: names of changes that wait for a slow subscriber count as memory. One
// without room loses them, is told so, and goes on.
func TestChangesWithoutRoom(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		const room = 1000
		budget := memory.NewBudget(room)
		share := budget.Share(room)
		c := subscribe(memory.With(ctx, share), t, views["v1"], "old")
		w.put(ctx, "v1", "old", "a", "1")
		expectDirty(ctx, t, c, "old:a")
		for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			w.put(ctx, "v1", "old", name, "2")
		}
		expectDirty(ctx, t, c, vrunner.ErrLost.Error())
		w.put(ctx, "v1", "old", "b", "3")
		expectDirty(ctx, t, c, "old:b")
		if budget.Left() == room {
			t.Error("what the subscriber goes through does not count")
		}
		c.Close()
		if left := budget.Left(); left != room {
			t.Errorf("%d bytes are free in the end", left)
		}
	})
}

// TestKeptBodiesCount: a body counts once more while a server keeps it for another run, whatever a
// listener counts for the messages in it. It counts no longer while a client reads the answer.
func TestKeptBodiesCount(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{}, func(ctx context.Context, w *world, s *service, r *vrunner.Runner, _ *announced) {
		const room, size = 10_000, 1000
		budget := memory.NewBudget(room)
		var during int64
		s.instead = func(string, *vrunner.View, *http.Request) error {
			during = room - budget.Left()
			return nil
		}
		goOn := make(chan struct{})
		serve := func(most int64, goOn <-chan struct{}) <-chan *httptest.ResponseRecorder {
			done := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				share := budget.Share(most)
				defer share.End()
				out := httptest.NewRecorder()
				r.ServeHTTP(unreadAnswer{out, goOn}, put("a", strings.Repeat("x", size)).WithContext(memory.With(ctx, share)))
				done <- out
			}()
			synctest.Wait()
			return done
		}
		first := serve(room, goOn)
		if during != size {
			t.Errorf("%d bytes are taken while it runs, want %d", during, size)
		}
		close(goOn)
		expect(t, "a write", first, http.StatusOK, "v1")
		other := budget.Share(room)
		other.Take(room - size + 1)
		res := expect(t, "next to others", serve(room, goOn), http.StatusServiceUnavailable, "")
		if res.Header().Get("Retry-After") == "" {
			t.Errorf("%v", res.Header())
		}
		other.End()
		res = expect(t, "without room for ever", serve(size-1, goOn), http.StatusRequestEntityTooLarge, "")
		if res.Header().Get("Retry-After") != "" {
			t.Errorf("%v: no other attempt helps", res.Header())
		}
	})
}

// TestNoRoomForABody: whose body finds no room next to those of others reads the same, of a server
// that switches and of a handler as a controller has it, which Connect itself reads bodies for. So does
// one that never finds room, which is told that no other attempt helps.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	const room, ofOthers = 1 << 10, "Of-Others"
	for name, handler := range map[string]func(context.Context, *testing.T) http.Handler{
		"server": func(ctx context.Context, t *testing.T) http.Handler {
			w := newWorld(ctx, t, plain)
			return w.serves(ctx, w.clients(), vrunner.Config{}, writes("a"))
		},
		"controller": func(context.Context, *testing.T) http.Handler {
			return connect.NewUnaryHandler(refusedCall, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
				return connect.NewResponse(&emptypb.Empty{}), nil
			})
		},
	} {
		for protocol, ask := range map[string]func(context.Context, string) (refused, error){
			"HTTP":         overHTTP,
			"connect json": overConnect(nil, connect.WithProtoJSON()),
			"grpc":         overConnect(&only2, connect.WithGRPC()),
		} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				served, held, leave := handler(ctx, t), make(chan struct{}), make(chan struct{})
				r := refusing{door: door.Config{BodiesBytes: room}, handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get(ofOthers) != "" {
						memory.Of(req.Context()).Take(room)
						close(held)
						<-leave
						return
					}
					served.ServeHTTP(w, req)
				})}
				url := r.open(ctx, t) + refusedCall
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(ofOthers, "yes")
				left := make(chan struct{})
				go func() {
					defer close(left)
					if res, err := http.DefaultClient.Do(req); err == nil {
						_ = res.Body.Close()
					}
				}()
				<-held
				want := refused{code: connect.CodeUnavailable, reason: string(refusal.Busy), domain: "dbcontroller.dev"}
				if got, err := ask(ctx, url); err != nil || got != want {
					t.Errorf("%+v, %v, want %+v", got, err, want)
				}
				close(leave)
				<-left
				never := refusing{door: door.Config{BodiesBytes: 1}, handler: served}
				if got, err := ask(ctx, never.open(ctx, t)+refusedCall); err != nil || got != (refused{code: connect.CodeResourceExhausted}) {
					t.Errorf("without room for ever: %+v, %v", got, err)
				}
			})
		}
	}
}
