package hooks_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/hooks"
)

func run(t *testing.T, timeout time.Duration, script string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	argv := append([]string{"/bin/sh", "-c", script, "hook"}, args...)
	return hooks.NewCommand(argv).Send(ctx, hooks.Event{ID: "event-1", Type: hooks.Aborted, Deployment: "services/a/deployments/b"}, []byte(`{"id":"event-1"}`))
}

// TestCommand gets the event, and nothing of our environment that it does not need.
func TestCommand(t *testing.T) {
	t.Setenv("MONGO_URI", "mongodb://me:hidden@db")
	to := filepath.Join(t.TempDir(), "said")
	if err := run(t, time.Minute, `{ cat; echo; env; echo "$1"; } > "$2"; echo noise; echo noise >&2`, "$(not a shell)", to); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	said := string(b)
	for _, want := range []string{`{"id":"event-1"}`, "DBCONTROLLER_EVENT=aborted", "DBCONTROLLER_EVENT_ID=event-1", "DBCONTROLLER_DEPLOYMENT=services/a/deployments/b", "PATH=", "$(not a shell)"} {
		if !strings.Contains(said, want) {
			t.Errorf("it was not given %s", want)
		}
	}
	if strings.Contains(said, "hidden") {
		t.Error("it was given a password of ours")
	}
}

// TestCommandThatFails: by its status, or since it is not there. One that does not read what
// it is given is fine.
func TestCommandThatFails(t *testing.T) {
	t.Parallel()
	if err := run(t, time.Minute, "exit 3"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("status 3: %v", err)
	}
	if err := run(t, time.Minute, "exec <&-; exit 0"); err != nil {
		t.Errorf("it does not read: %v", err)
	}
	if err := hooks.NewCommand([]string{"/no/such/program"}).Send(t.Context(), hooks.Event{}, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no program: %v", err)
	}
	for path, want := range map[string]string{"/no/such/program": "no such file", "/bin": "not a program", "/etc/passwd": "not a program"} {
		if err := hooks.CheckCommand(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := hooks.CheckCommand("/bin/sh"); err != nil {
		t.Error(err)
	}
}

// TestCommandIsKilledAsAGroup: what hangs is ended with all that it has started, and does not
// keep us waiting.
func TestCommandIsKilledAsAGroup(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	// A busy machine may not have started the script before a short limit.
	var b []byte
	for limit := 2 * time.Second; len(b) == 0; limit *= 2 {
		err := run(t, limit, `sleep 600 & echo $! > "$1"; trap '' TERM; wait`, to)
		if err == nil || time.Since(start) > 5*time.Minute {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
		if b, err = os.ReadFile(to); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if errors.Is(syscall.Kill(child, 0), syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return // nobody may be there to take its status
		}
		if time.Now().After(end) {
			t.Fatalf("process %d of the group is alive", child)
		}
	}
}
