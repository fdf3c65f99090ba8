package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/upgradestate"
)

// TestExitStatusTellsTheKindOfFailure: as docs/cli.md has them.
func TestExitStatusTellsTheKindOfFailure(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv(serverEnv, "")
	answers := func(code connect.Code) string {
		return serve(t, &fake{deployment: clitest.Sample(), err: connect.NewError(code, errors.New("no"))})
	}
	good := serve(t, &fake{deployment: clitest.Sample()})
	different := serve(t, &fake{report: &dbv1.VerifyReport{Mismatched: 1}})
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	badConfig := write("bad.yaml", "deploment: x\n")
	alone := write("alone.yaml", "deployment: services/shop/deployments/x\ndataDir: "+dir+"\ndbs:\n- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: \"mongodb://127.0.0.1:1\"}}\n")
	badLens := write("lens.yaml", "operations:\n- renam: {}\n")
	for _, tc := range []struct {
		line string
		want exit.Status
	}{
		{"version", exit.Done},
		{"get deployment --server " + good, exit.Done},
		{"pause --dry-run --server " + good, exit.Done},

		{"verify --server " + different, exit.Findings},
		{"lens lint " + badLens, exit.Findings},

		{"get", exit.Usage},
		{"gett", exit.Usage},
		{"get deployment --sever x", exit.Usage},
		{"get deployment extra --server " + good, exit.Usage},
		{"get deployment", exit.Usage},
		{"get deployment --timeout 0s --server " + good, exit.Usage},
		{"get deployment -o yaml --server " + good, exit.Usage},
		{"get deployment --server http://ann:s3cret@ctl", exit.Usage},
		{"get deployment --context nowhere", exit.Usage},
		{"get deployment --server " + answers(connect.CodeInvalidArgument), exit.Usage},
		{"pace --max-rate -1 --server " + good, exit.Usage},
		{"run", exit.Misconfig},
		{"run --confi x", exit.Misconfig},
		{"run extra", exit.Misconfig},
		{"run --config " + badConfig, exit.Misconfig},
		{"run --config " + filepath.Join(dir, "none.yaml"), exit.Misconfig},
		{"run --config " + alone, exit.Unreachable},
		{"proxy", exit.Misconfig},
		{"proxy --confi x", exit.Misconfig},
		{"proxy --log-level loud --config x", exit.Misconfig},
		{"proxy --config " + badConfig, exit.Misconfig},
		{"proxy --config " + filepath.Join(dir, "none.yaml"), exit.Misconfig},
		{"proxy verifier --confi x", exit.Usage},
		{"recover --config " + badConfig, exit.Usage},
		{"lens try " + badLens, exit.Usage},
		{"lens lint " + filepath.Join(dir, "none.yaml"), exit.Usage},
		{"roles --config " + badConfig, exit.Usage},

		{"get deployment --server " + answers(connect.CodeNotFound), exit.NotFound},
		{"pause --server " + answers(connect.CodeFailedPrecondition), exit.Refused},
		{"rollback --server " + serve(t, &fake{deployment: &dbv1.Deployment{}}), exit.Refused},
		{"parked waive --kind packages --all --server " + good, exit.Refused},
		{"get deployment --server " + answers(connect.CodeUnauthenticated), exit.NotAllowed},
		{"verify --server " + answers(connect.CodePermissionDenied), exit.NotAllowed},
		{"get deployment --server " + accesstest.ClosedPort(t), exit.Unreachable},
		{"verify --server " + accesstest.ClosedPort(t), exit.Unreachable},
		{"watch deployment --server " + accesstest.ClosedPort(t), exit.Unreachable},
		{"pause --server " + accesstest.ClosedPort(t) + "," + accesstest.ClosedPort(t), exit.Unreachable},
		{"get deployment --server " + answers(connect.CodeUnavailable), exit.Unreachable},
		{"recover --config " + alone, exit.Unreachable},
		{"get deployment --server " + answers(connect.CodeDeadlineExceeded), exit.Timeout},
		{"get deployment --server " + answers(connect.CodeDataLoss), exit.Failed},
	} {
		t.Run(tc.line, func(t *testing.T) {
			_, _, err := run(t, strings.Fields(tc.line)...)
			if got := exit.Of(err); got != tc.want {
				t.Errorf("exit status %d, want %d: %v", got, tc.want, err)
			}
		})
	}
	for err, want := range map[error]exit.Status{
		context.Canceled: exit.Interrupted,
		fmt.Errorf("recover: %w", &upgradestate.RefusedError{Reason: "no"}): exit.Refused,
		fmt.Errorf("read: %w", context.DeadlineExceeded):                    exit.Timeout,
		errors.New("something"):                                             exit.Failed,
	} {
		if got := exit.Of(err); got != want {
			t.Errorf("%v: exit status %d, want %d", err, got, want)
		}
	}
}

// TestTheProgramEndsWithItsStatus: what exit.Of says is what a shell sees.
func TestTheProgramEndsWithItsStatus(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]exit.Status{"version": exit.Done, "gett": exit.Usage, "run": exit.Misconfig, "list --server " + accesstest.ClosedPort(t): exit.Unreachable} {
		cmd := exec.CommandContext(t.Context(), exe, strings.Fields(line)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "DBCONTROLLER_SERVER=")
		out, _ := cmd.CombinedOutput()
		if got := exit.Status(cmd.ProcessState.ExitCode()); got != want {
			t.Errorf("%s: exit status %d, want %d: %s", line, got, want, out)
		}
	}
}
