package subprocess_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/integration/subprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is far more than a process needs that ends.
const patience = time.Minute

func start(t *testing.T, script string) *subprocess.Process {
	t.Helper()
	p, err := subprocess.Start(exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		p := start(t, "exit 3")
		if code, err := p.Wait(); code != 3 || err == nil || p.Running() {
			t.Errorf("it ended with %d, %v; running: %t", code, err, p.Running())
		}
	})
	t.Run("when asked", func(t *testing.T) {
		t.Parallel()
		if p := start(t, "exec sleep 600"); !p.Running() || !p.Stop(patience) {
			t.Error("it did not end when it was asked to")
		}
	})
	t.Run("killed, as it does not listen", func(t *testing.T) {
		t.Parallel()
		cmd := exec.Command("sh", "-c", "trap '' TERM; echo deaf; exec sleep 600")
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		cmd.Stdout = write
		p, err := subprocess.Start(cmd)
		write.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if _, err := read.Read(make([]byte, 1)); err != nil { // before that it listens
			t.Fatal(err)
		}
		if p.Stop(time.Millisecond) {
			t.Error("a process that ignores the signal ended when it was asked to")
		}
		if code, _ := p.Wait(); code != -1 {
			t.Errorf("it ended with %d, want a signal", code)
		}
	})
}

func TestNotStarted(t *testing.T) {
	t.Parallel()
	if _, err := subprocess.Start(exec.Command(filepath.Join(t.TempDir(), "none"))); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := subprocess.Addresses(log); err == nil {
		t.Error("addresses in a log that is not there")
	}
	write("not JSON\n{\"msg\":\"starts\"}\n{\"api\":\"h:1\",\"opera")
	if _, _, err := subprocess.Addresses(log); err == nil {
		t.Error("addresses in a line that is not whole")
	}
	write("not JSON\n{\"api\":\"h:1\",\"operator\":\"h:2\"}\n{\"msg\":\"runs\"}\n")
	if api, operator, err := subprocess.Addresses(log); err != nil || api != "h:1" || operator != "h:2" {
		t.Errorf("%q, %q, %v", api, operator, err)
	}
	if got := subprocess.Tail(log, 1); got != `{"msg":"runs"}` {
		t.Errorf("the last line is %q", got)
	}
}
