package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

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
