package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dbcontroller.dev/integration/subprocess"
)

// child is a process of the system under test. It dies with this process, however that
// ends.
type child struct {
	*subprocess.Process
	t     *testing.T
	name  string
	log   string // file: what it writes to standard error
	stdin io.WriteCloser
	http  *http.Client // of who asks whether it is ready

	reached chan string // places that it told of
	late    chan event  // of an Apply that was released

	mu            sync.Mutex
	api, operator string // where it listens; empty until it has said so
	loaded        int
	ended         bool // by us
}

// command is a child that is not started yet.
func command(t *testing.T, role string, args, env []string) *exec.Cmd {
	t.Helper()
	return program(player(t), args, append([]string{roleVariable + "=" + role}, env...))
}

// program is one that was built, and is not started yet.
func program(binary string, args, env []string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// spawn starts a child. It is killed at the end of the test if it still runs; one that
// ended by itself, raced or panicked fails the test.
func spawn(t *testing.T, name string, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{
		t: t, name: name, http: http.DefaultClient, log: filepath.Join(t.TempDir(), name+".log"),
		reached: make(chan string, 64), late: make(chan event, 64),
	}
	log, err := os.Create(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	cmd.ExtraFiles = []*os.File{write}
	if c.Process, err = subprocess.Start(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.listen(read)
	}()
	t.Cleanup(func() {
		c.kill()
		<-told
		c.inspect()
	})
	return c
}

// listen reads what the child tells until its end.
func (c *child) listen(events *os.File) {
	defer events.Close()
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); err != nil {
			return // the child is gone; what it did not tell whole does not count
		}
		c.mu.Lock()
		c.loaded += e.Loaded
		c.mu.Unlock()
		if e.Reached != "" {
			c.reached <- e.Reached
		}
		if e.Late != "" {
			c.late <- e
		}
	}
}

// inspect fails the test for what a child must never do.
func (c *child) inspect() {
	text, err := os.ReadFile(c.log)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	for _, never := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if bytes.Contains(text, []byte(never)) {
			c.t.Errorf("%s: %s in its log", c.name, never)
			ended = false
		}
	}
	if !ended {
		c.t.Errorf("%s ended by itself: %v", c.name, c.err())
	}
	if c.t.Failed() {
		c.t.Logf("log of %s:\n%s", c.name, subprocess.Tail(c.log, 40))
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (c *child) output() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// loads is how many groups the child's Loads have applied.
func (c *child) loads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// kill ends the process with SIGKILL and returns when it is gone. One that ended before
// anyone asked stays one that ended by itself.
func (c *child) kill() {
	c.t.Helper()
	c.end(syscall.SIGKILL)
	<-c.Done()
}

// err is what is wrong with the process's end, for which it waits.
func (c *child) err() error {
	_, err := c.Wait()
	return err
}

// terminate asks the process to end and returns its exit code.
func (c *child) terminate(patience time.Duration) int {
	c.t.Helper()
	c.end(syscall.SIGTERM)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-c.Done():
		code, _ := c.Wait()
		return code
	case <-timeout.C:
		c.t.Errorf("%s still runs %s after SIGTERM", c.name, patience)
		c.kill()
		return -1
	}
}

func (c *child) end(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Running() {
		c.ended = true
		_ = c.Signal(s) // an error means that it just ended
	}
}

// signal sends SIGSTOP or SIGCONT and returns when it took effect.
func (c *child) signal(ctx context.Context, s syscall.Signal) {
	c.t.Helper()
	if err := c.Signal(s); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	eventually(ctx, c.t, fmt.Sprintf("%s takes %v", c.name, s), func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Pid()))
		if err != nil {
			return err
		}
		// The state follows the name, which is in parentheses.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if stopped := strings.HasPrefix(rest, "T"); stopped != (s == syscall.SIGSTOP) {
			return fmt.Errorf("its state is %.1s", rest)
		}
		return nil
	})
}

// order tells the child something, which it may read later.
func (c *child) order(what string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, what+"\n"); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

// arm returns when the child's break point, or its hold, counts.
func (c *child) arm(ctx context.Context) {
	c.t.Helper()
	c.order(orderArm)
	if place := c.awaitReached(ctx); place != orderArm {
		c.t.Fatalf("%s is at %q", c.name, place)
	}
}

// awaitReached waits for the child's next place.
func (c *child) awaitReached(ctx context.Context) string {
	c.t.Helper()
	select {
	case place := <-c.reached:
		return place
	case <-c.Done():
		c.t.Fatalf("%s ended: %v", c.name, c.err())
	case <-ctx.Done():
		c.t.Fatalf("%s did not reach its place: %v", c.name, ctx.Err())
	}
	return ""
}
