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
