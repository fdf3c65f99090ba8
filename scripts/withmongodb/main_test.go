package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// mainVariable makes this test binary act as the command itself.
const mainVariable = "WITHMONGODB_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// withmongodb prepares a run whose temporary folder is checked for leftovers.
func withmongodb(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	tmp := t.TempDir()
	t.Cleanup(func() {
		if left, _ := os.ReadDir(tmp); len(left) > 0 {
			t.Errorf("%s is left", left[0].Name())
		}
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVariable+"=1", "TMPDIR="+tmp)
	return cmd
}

func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}

func TestCommandGetsAServerAndKeepsItsExitCode(t *testing.T) {
	t.Parallel()
	cmd := withmongodb(t, "-nodes", "3", "-v", "--", "sh", "-c", `echo "$DBCONTROLLER_TEST_MONGODB"; exit 7`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if code := exitCodeOf(t, err); code != 7 {
		t.Errorf("exit code %d, want 7: %s", code, stderr.String())
	}
	if uri := string(out); strings.Count(uri, "127.0.0.1:") != 3 || !strings.HasPrefix(uri, "mongodb://") {
		t.Errorf("connection string %q, want one with three members", uri)
	}
	if !strings.Contains(stderr.String(), "MongoDB") {
		t.Errorf("-v says %q, want the server in use", stderr.String())
	}
}

func TestSignalReachesTheCommandAndItsChildren(t *testing.T) {
	t.Parallel()
	cmd := withmongodb(t, "--", "sh", "-c", `trap 'echo asked; exit 9' TERM; sleep 60 & echo "$!"; wait`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the command did not start")
	}
	child := lines.Text()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Reading to the end proves that the grandchild, which holds the pipe,
	// is gone too.
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	if code := exitCodeOf(t, cmd.Wait()); code != 9 {
		t.Errorf("exit code %d, want 9 from the command's own handler", code)
	}
	if strings.Join(rest, "|") != "asked" {
		t.Errorf("after the signal the command (child %s) printed %q, want %q", child, rest, "asked")
	}
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "no command given"},
		{"unknown flag", []string{"-frobnicate"}, "frobnicate"},
		{"too many nodes", []string{"-nodes", "9", "--", "true"}, "nodes is 9, must be 1 to 7"},
		{"no such program", []string{"--", "no-such-program-here"}, "run command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := withmongodb(t, tc.args...)
			out, err := cmd.CombinedOutput()
			if code := exitCodeOf(t, err); code != exitOwn {
				t.Errorf("exit code %d, want %d", code, exitOwn)
			}
			if !strings.Contains(string(out), tc.want) {
				t.Errorf("output %q does not say %q", out, tc.want)
			}
		})
	}
}
