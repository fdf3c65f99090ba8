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
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// watching runs a server in simulated time whose requests share a budget, and each of which has a
// compressed body that may become large. busy is how often the handler of v2 finds no room.
func watching(ctx context.Context, w *world, budget *memory.Budget, body int64, busy *atomic.Int64) *connect.Client[text, text] {
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(version string, views map[string]*vrunner.View) vrunner.Stack {
		watch := watchHandler(version, views[version])
		return vrunner.Stack{
			Handler: connect.NewServerStreamHandler(watchPath, func(ctx context.Context, req *connect.Request[text], out *connect.ServerStream[text]) error {
				if version == "v2" && busy.Add(-1) >= 0 {
					return refusal.New(refusal.Busy, errors.New("no room"))
				}
				return watch(ctx, req, out)
			}),
			Write: func(*http.Request) bool { return false },
		}
	}, vrunner.Config{ID: "server"}, nil)
	go func() { _ = r.Run(ctx) }() // ends with ctx
	synctest.Wait()
	p := watchedText
	p.Procedure = watchPath
	_, h := vrunner.NewWatchHandler[text](r, p)
	return connect.NewClient[text, text](inprocess.Client(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		share := budget.Share(1 << 40)
		defer share.End()
		share.Reserve(body)
		h.ServeHTTP(w, req.WithContext(memory.With(req.Context(), share)))
	})), "http://inprocess"+watchPath)
}

// TestWatchesLeaveRoom: whatever watches remember, and whatever their bodies may have become, half of
// the memory stays for other requests.
func TestWatchesLeaveRoom(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		const names, watches, room, body = 20, 6, 16 << 10, 6 << 10 // one watch remembers about 4 KiB
		var want []string
		for i := range names {
			name := fmt.Sprintf("%02d", i) + strings.Repeat("x", 100)
			w.put(ctx, "v1", "old", name, "1")
			want = append(want, "PUT "+name+" 1")
		}
		budget := memory.NewBudget(room)
		client := watching(ctx, w, budget, body, new(atomic.Int64))
		for range watches {
			f := follow(t, client, "")
			defer f.close()
			f.expect(append(want, "LEVEL")...)
		}
		if left := budget.Left(); left < room/2 || left > room*3/4 {
			t.Errorf("%d bytes of %d are free", left, room)
		}
	})
}

// TestWatchBusyAfterASwitch: a watch goes on over a switch after which its handler finds no room for a
// while. A new watch is refused.
func TestWatchBusyAfterASwitch(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		w.put(ctx, "v1", "old", "a", "1")
		const refusals = 10
		var busy atomic.Int64
		client := watching(ctx, w, memory.NewBudget(1<<20), 0, &busy)
		f := follow(t, client, "")
		defer f.close()
		f.expect("PUT a 1", "LEVEL")
		busy.Store(refusals)
		began := time.Now()
		w.begin(ctx)
		w.until(ctx, open("v2"))
		w.put(ctx, "v2", "new", "b", "2")
		f.expect("PUT b 2", "DELETE a")
		if took := time.Since(began); busy.Load() >= 0 || took < time.Second || took > 5*time.Minute {
			t.Errorf("it goes on after %s, with %d refusals to come", took, busy.Load())
		}
		busy.Store(1)
		other := follow(t, client, "")
		defer other.close()
		other.ends(connect.CodeUnavailable, "no room")
	})
}

// TestWatchThatPanics: a panic in a watch is in the server's log and in the audit. Its value, which may
// be from a record, does not reach the client.
func TestWatchThatPanics(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(string, map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{
				Handler: connect.NewServerStreamHandler(watchPath, func(context.Context, *connect.Request[text], *connect.ServerStream[text]) error {
					panic("canary")
				}),
				Write: func(*http.Request) bool { return false },
			}
		}, vrunner.Config{ID: "server"}, nil)
		go func() { _ = r.Run(ctx) }() // ends with ctx
		synctest.Wait()
		p := watchedText
		p.Procedure = watchPath
		_, h := vrunner.NewWatchHandler[text](r, p)
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(core)
		guard, err := access.NewGuard(access.GuardConfig{
			Unproven: access.Loopback, Table: access.Table{watchPath: {Least: access.Application}}, Audit: access.NewAudit(log), Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		f := follow(t, connect.NewClient[text, text](inprocess.Client(guard.Handler(h)), "http://localhost"+watchPath), "")
		defer f.close()
		if f.stream.Receive() {
			t.Fatalf("got %s", f.stream.Msg())
		}
		if err := f.stream.Err(); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("the client gets %v", err)
		}
		lines := logs.FilterMessage("a handler panicked").All()
		if len(lines) != 1 || logs.FilterMessage("panicked").Len() != 1 {
			t.Fatalf("the log has %v", logs.All())
		}
		text := lines[0].ContextMap()
		if stack, _ := text["stack"].(string); text["panic"] != "canary" || !strings.Contains(stack, "TestWatchThatPanics") {
			t.Errorf("the log says %v", text)
		}
	})
}

// revocable proves alice until it is revoked.
type revocable struct{ revoked atomic.Bool }

func (*revocable) Wants() string { return "a proof" }

func (r *revocable) Authenticate(context.Context, *http.Request) (access.Identity, error) {
	if r.revoked.Load() {
		return access.Identity{}, access.ErrNoProof
	}
	return access.Identity{Name: "token:alice", Proof: "token"}, nil
}

// TestWatchOfARevokedCaller: the client of a watch that ends because its token was revoked learns that,
// and not that it has canceled the call itself.
func TestWatchOfARevokedCaller(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(string, map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{
				Handler: connect.NewServerStreamHandler(watchPath, func(ctx context.Context, _ *connect.Request[text], _ *connect.ServerStream[text]) error {
					<-ctx.Done()
					return ctx.Err()
				}),
				Write: func(*http.Request) bool { return false },
			}
		}, vrunner.Config{ID: "server"}, nil)
		go func() { _ = r.Run(ctx) }() // ends with ctx
		synctest.Wait()
		p := watchedText
		p.Procedure = watchPath
		_, h := vrunner.NewWatchHandler[text](r, p)
		policy, err := access.NewPolicy([]access.Grant{{Role: access.Application, Identity: "token:alice"}})
		if err != nil {
			t.Fatal(err)
		}
		alice := &revocable{}
		guard, err := access.NewGuard(access.GuardConfig{
			Authenticators: []access.Authenticator{alice}, Policy: policy, Table: access.Table{watchPath: {Least: access.Application}},
		})
		if err != nil {
			t.Fatal(err)
		}
		// Before the call, because it waits for the first message.
		time.AfterFunc(time.Minute, func() { alice.revoked.Store(true) })
		f := follow(t, connect.NewClient[text, text](inprocess.Client(guard.Handler(h)), "http://localhost"+watchPath), "")
		defer f.close()
		if f.stream.Receive() {
			t.Fatalf("got %s", f.stream.Msg())
		}
		if code := connect.CodeOf(f.stream.Err()); code != connect.CodeUnauthenticated {
			t.Errorf("the client gets %v", f.stream.Err())
		}
	})
}
