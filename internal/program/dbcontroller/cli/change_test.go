package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// fickle is a controller that loses the answers of changes.
type fickle struct {
	fake
	changes atomic.Int64
	done    *atomic.Bool // the deployment's, whichever controller is asked
	does    bool         // a change whose answer is lost is made
	hangs   bool         // and not answered, rather than broken off
}

func (f *fickle) SetPace(ctx context.Context, r *connect.Request[dbv1.SetPaceRequest]) (*connect.Response[dbv1.Deployment], error) {
	d := clitest.Sample()
	switch {
	case f.done.Load():
		d.Effects = []string{"nothing: bulk work is paused already"}
	default:
		d.Effects = []string{"pause bulk work"}
	}
	if r.Msg.GetDryRun() {
		return connect.NewResponse(d), nil
	}
	f.changes.Add(1)
	if f.does {
		f.done.Store(true)
	}
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	panic(http.ErrAbortHandler)
}

// TestAChangeWhoseAnswerIsLost is sent once, and asked for: what was done is success, what is
// not seen to be done has an exit status of its own.
func TestAChangeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		does, hangs bool
		want        exit.Status
	}{
		{"broken off, done", true, false, exit.Done},
		{"broken off, not done", false, false, exit.Unknown},
		{"no answer in time, done", true, true, exit.Done},
		{"no answer in time, not done", false, true, exit.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inTime(t, func(timeout string) error {
				done := &atomic.Bool{}
				a, b := &fickle{does: tc.does, hangs: tc.hangs, done: done}, &fickle{does: tc.does, hangs: tc.hangs, done: done}
				at := serveAPI(t, a) + "," + serveAPI(t, b)
				out, diag, err := run(t, "pause", "--timeout", timeout, "--server", at)
				n := a.changes.Load() + b.changes.Load()
				if n > 1 {
					t.Errorf("sent %d times", n)
				}
				if got := exit.Of(err); got != tc.want || n == 0 {
					return fmt.Errorf("with %s: sent %d times, exit status %d, want %d: %w", timeout, n, got, tc.want, err)
				}
				if tc.want == exit.Done {
					if !strings.HasPrefix(out, "done: ") || !strings.Contains(diag, "the answer was lost") || !strings.HasSuffix(diag, "the change is made\n") {
						return fmt.Errorf("with %s: printed %q, diagnostics %q", timeout, out, diag)
					}
					return nil
				}
				if text := err.Error(); out != "" || !strings.Contains(text, "the answer was lost and the change is not made yet") || !strings.Contains(text, "'dbcontroller history' shows the outcome; it is safe to repeat the command") {
					return fmt.Errorf("with %s: printed %q, %w", timeout, out, err)
				}
				return nil
			})
		})
	}
}

// TestAnInterruptedChangeSaysThatItMayBeDone.
func TestAnInterruptedChangeSaysThatItMayBeDone(t *testing.T) {
	t.Parallel()
	f := &fickle{hangs: true, done: &atomic.Bool{}}
	c := &connection{timeout: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := change[dbv1.Deployment]{send: func(ctx context.Context) (*connect.Response[dbv1.Deployment], error) {
		cancel()
		return f.SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{}))
	}}.make(ctx, c, nil)
	if exit.Of(err) != exit.Unknown || !strings.Contains(err.Error(), "interrupted before the controller answered") {
		t.Error(err)
	}
}

// TestServersFailOver: of several controllers the one that is there answers, whichever way
// they were named.
func TestServersFailOver(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(serverEnv, "")
	at := accesstest.ClosedPort(t) + ", " + serve(t, &fake{deployment: clitest.Sample()})
	if _, _, err := run(t, "get", "deployment", "--server", at); err != nil {
		t.Error(err)
	}
	if _, _, err := run(t, "context", "set", "both", "--server", at); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "pause"); err != nil {
		t.Error(err)
	}
	t.Setenv(serverEnv, at)
	if _, _, err := run(t, "verify"); err == nil || !strings.Contains(err.Error(), "without a report") {
		t.Error(err)
	}
	a, b := accesstest.ClosedPort(t), accesstest.ClosedPort(t)
	if _, _, err := run(t, "list", "--server", a+","+b); err == nil || !strings.HasPrefix(err.Error(), "no controller answers at "+a+", "+b+": ") {
		t.Error(err)
	}
}
