package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/transform/lens/lint"
)

// TestProgressOnATerminal is one line that is drawn again, never wraps, and is gone at the end.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b)
		p.width = 30
		p.show("", "compared 10 groups")
		time.Sleep(65 * time.Second)
		p.show("", "compared 10,000 groups, 7 % of about 20,000 records")
		p.end()
		p.end()
		const want = "\r\x1b[Kcompared 10 groups\r\x1b[Kcompared 10,000 groups, 7 % …\r\x1b[K"
		if b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	})
}

// TestProgressElsewhere is a line now and then, the first at once.
func TestProgressElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b)
		for i := range 24 {
			p.show("", "compared "+count(int64(i)*1000))
			time.Sleep(500 * time.Millisecond)
		}
		p.show("", "")
		p.end()
		p.show("again", "compares again")
		if want := "compared 0\ncompared 10,000 (5s so far)\ncompared 20,000 (10s so far)\ncompares again (12s so far)\n"; b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	})
}

func TestWorkText(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*dbv1.WorkProgress{
		"": nil,
		"copies: 1,500 of about 3,000 (50 %), about 2m5s left": {Doing: "copies", Done: 1500, Total: 3000, EtaSeconds: ptr[int64](125)},
		"counts: 7":     {Doing: "counts", Done: 7},
		"checks spaces": {Doing: "checks spaces"},
	} {
		if got := workText(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// hanging is a controller whose comparison says something once, and then nothing.
type hanging struct {
	fake
	began, ended chan struct{}
	promises     bool // another sign of life
}

func (h *hanging) Verify(ctx context.Context, _ *connect.Request[dbv1.VerifyRequest], s *connect.ServerStream[dbv1.VerifyResponse]) error {
	w := &dbv1.WorkProgress{Doing: "compares", Done: 5, Total: 10}
	if h.promises {
		w.NextWithinMillis = 10
	}
	if err := s.Send(&dbv1.VerifyResponse{Work: w, Progress: &dbv1.VerifyProgress{Compared: 5}}); err != nil {
		return err
	}
	close(h.began)
	<-ctx.Done()
	close(h.ended)
	return ctx.Err()
}

// TestALongCallThatIsSilent is given up when signs of life were promised, and ends at the
// controller as well.
func TestALongCallThatIsSilent(t *testing.T) {
	t.Parallel()
	inTime(t, func(timeout string) error {
		h := &hanging{began: make(chan struct{}), ended: make(chan struct{}), promises: true}
		out, _, err := run(t, "verify", "--timeout", timeout, "--server", serveAPI(t, h))
		if exit.Of(err) != exit.Timeout || out != "" || !strings.Contains(err.Error(), "have sent nothing for too long about the comparison") {
			return fmt.Errorf("with %s: printed %q, %w", timeout, out, err)
		}
		<-h.ended
		return nil
	})
}

// TestInterrupted: Ctrl-C ends a long command, and what it had begun at the controller.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	h := &hanging{began: make(chan struct{}), ended: make(chan struct{})}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, diag bytes.Buffer
	cmd := exec.CommandContext(t.Context(), exe, "verify", "--server", serveAPI(t, h))
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asProgram+"=1"), &out, &diag
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-h.began
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-h.ended
	_ = cmd.Wait() // its status says it
	if got := exit.Status(cmd.ProcessState.ExitCode()); got != exit.Interrupted || out.Len() > 0 || !strings.HasSuffix(diag.String(), "dbcontroller: interrupted\n") {
		t.Errorf("exit status %d, printed %q, diagnostics %q", got, out.String(), diag.String())
	}
}

// TestAControllerThatGoesAway ends the long call in a line that says so.
func TestAControllerThatGoesAway(t *testing.T) {
	t.Parallel()
	_, _, err := run(t, "verify", "--server", serveAPI(t, &leaving{}))
	if exit.Of(err) != exit.Unreachable || !strings.Contains(err.Error(), "the controller stopped, and with it the comparison") {
		t.Error(err)
	}
}

type leaving struct{ fake }

func (*leaving) Verify(_ context.Context, _ *connect.Request[dbv1.VerifyRequest], s *connect.ServerStream[dbv1.VerifyResponse]) error {
	if err := s.Send(&dbv1.VerifyResponse{}); err != nil {
		return err
	}
	panic(http.ErrAbortHandler)
}

// TestLintSaysHowFarItIs: of a sample that takes long to read, by what of it was read.
func TestLintSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o := &opened{samples: []lint.Sample{{Kind: "orders", Source: &slow{left: 2000}}}, parts: map[string]func(int64) float64{"orders": partOf(2000)}}
		o.showing(newProgress(&b))
		for {
			if _, err := o.samples[0].Source.Next(t.Context()); err != nil {
				break
			}
		}
		const want = "read 513 records of orders, 25 %, about 15s left (5s so far)\nread 1,025 records of orders, 51 %, about 10s left (10s so far)\n" +
			"read 1,537 records of orders, 76 %, about 5s left (15s so far)\nread 2,000 records of orders, and tries them (20s so far)\n"
		if b.String() != want {
			t.Errorf("%s\nwant %s", b.String(), want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := o.samples[0].Source.Next(ctx); exit.Of(err) != exit.Interrupted {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// slow is a sample of which a record takes 10 ms.
type slow struct{ left int }

func (s *slow) Next(context.Context) (bson.Raw, error) {
	if s.left == 0 {
		return nil, io.EOF
	}
	s.left--
	time.Sleep(10 * time.Millisecond)
	return bson.Raw{}, nil
}
