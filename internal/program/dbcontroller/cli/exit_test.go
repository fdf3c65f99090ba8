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
	"dbcontroller.dev/upgradestate"
)

// TestExitStatusTellsTheKindOfFailure: as docs/cli.md has them.
func TestExitStatusTellsTheKindOfFailure(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv(serverEnv, "")
	answers := func(code connect.Code) string {
		return serve(t, &fake{deployment: sample(), err: connect.NewError(code, errors.New("no"))})
	}
	good := serve(t, &fake{deployment: sample()})
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
		want exit
	}{
		{"version", exitDone},
		{"get deployment --server " + good, exitDone},
		{"pause --dry-run --server " + good, exitDone},

		{"verify --server " + different, exitFindings},
		{"lens lint " + badLens, exitFindings},

		{"get", exitUsage},
		{"gett", exitUsage},
		{"get deployment --sever x", exitUsage},
		{"get deployment extra --server " + good, exitUsage},
		{"get deployment", exitUsage},
		{"get deployment --timeout 0s --server " + good, exitUsage},
		{"get deployment -o yaml --server " + good, exitUsage},
		{"get deployment --server http://ann:s3cret@ctl", exitUsage},
		{"get deployment --context nowhere", exitUsage},
		{"get deployment --server " + answers(connect.CodeInvalidArgument), exitUsage},
		{"pace --max-rate -1 --server " + good, exitUsage},
		{"run", exitUsage},
		{"run --config " + badConfig, exitUsage},
		{"run --config " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"recover --config " + badConfig, exitUsage},
		{"lens try " + badLens, exitUsage},
		{"lens lint " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"roles --config " + badConfig, exitUsage},

		{"get deployment --server " + answers(connect.CodeNotFound), exitNotFound},
		{"pause --server " + answers(connect.CodeFailedPrecondition), exitRefused},
		{"rollback --server " + serve(t, &fake{deployment: &dbv1.Deployment{}}), exitRefused},
		{"parked waive --kind packages --all --server " + good, exitRefused},
		{"get deployment --server " + answers(connect.CodeUnauthenticated), exitNotAllowed},
		{"verify --server " + answers(connect.CodePermissionDenied), exitNotAllowed},
		{"get deployment --server " + accesstest.ClosedPort(t), exitUnreachable},
		{"verify --server " + accesstest.ClosedPort(t), exitUnreachable},
		{"watch deployment --server " + accesstest.ClosedPort(t), exitUnreachable},
		{"pause --server " + accesstest.ClosedPort(t) + "," + accesstest.ClosedPort(t), exitUnreachable},
		{"get deployment --server " + answers(connect.CodeUnavailable), exitUnreachable},
		{"recover --config " + alone, exitUnreachable},
		{"get deployment --server " + answers(connect.CodeDeadlineExceeded), exitTimeout},
		{"get deployment --server " + answers(connect.CodeDataLoss), exitFailed},
	} {
		t.Run(tc.line, func(t *testing.T) {
			_, _, err := run(t, strings.Fields(tc.line)...)
			if got := exitOf(err); got != tc.want {
				t.Errorf("exit status %d, want %d: %v", got, tc.want, err)
			}
		})
	}
	for err, want := range map[error]exit{
		context.Canceled: exitInterrupted,
		fmt.Errorf("recover: %w", &upgradestate.RefusedError{Reason: "no"}): exitRefused,
		fmt.Errorf("read: %w", context.DeadlineExceeded):                    exitTimeout,
		errors.New("something"):                                             exitFailed,
	} {
		if got := exitOf(err); got != want {
			t.Errorf("%v: exit status %d, want %d", err, got, want)
		}
	}
}

// TestTheProgramEndsWithItsStatus: what exitOf says is what a shell sees.
func TestTheProgramEndsWithItsStatus(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]exit{"version": exitDone, "gett": exitUsage, "list --server " + accesstest.ClosedPort(t): exitUnreachable} {
		cmd := exec.CommandContext(t.Context(), exe, strings.Fields(line)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "DBCONTROLLER_SERVER=")
		out, _ := cmd.CombinedOutput()
		if got := exit(cmd.ProcessState.ExitCode()); got != want {
			t.Errorf("%s: exit status %d, want %d: %s", line, got, want, out)
		}
	}
}
