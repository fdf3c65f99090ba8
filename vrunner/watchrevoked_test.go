package vrunner_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/vrunner"
)

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
