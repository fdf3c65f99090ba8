package localmongo

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cenkalti/backoff/v4"
)

// parentVariable makes this test binary act as the parent of
// TestMongodDiesWithItsParent.
const parentVariable = "LOCALMONGO_TEST_PARENT"

func TestMongodDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Getenv(parentVariable) != "" {
		s, err := Start(t.Context(), Options{Own: true, Dir: os.Getenv(parentVariable)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("pid %d\n", s.Nodes()[0].Pid())
		select {} // until killed
	}
	adoptOrphans(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestMongodDiesWithItsParent$")
	cmd.Env = append(os.Environ(), parentVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, _ = strconv.Atoi(text)
		} else {
			t.Log(lines.Text())
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed, so an error is expected
	if pid == 0 {
		t.Fatal("the parent printed no process id")
	}
	var status syscall.WaitStatus
	err = poll(t.Context(), func() error {
		ended, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err != nil {
			return backoff.Permanent(err)
		}
		if ended != pid {
			return fmt.Errorf("mongod %d still runs", pid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if status.Signal() != syscall.SIGKILL {
		t.Errorf("mongod ended with %v, want the parent death signal", status)
	}
}

// adoptOrphans makes this process the parent of mongods whose parent died, so
// that the test can wait for them; not every container has an init that does.
func adoptOrphans(t *testing.T) {
	t.Helper()
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		t.Fatal(errno)
	}
}
