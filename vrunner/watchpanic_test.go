package vrunner_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/vrunner"
)

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
		if stack, _ := text["stack"].(string); text["panic"] != "canary" || !strings.Contains(stack, "watchpanic_test.go") {
			t.Errorf("the log says %v", text)
		}
	})
}
