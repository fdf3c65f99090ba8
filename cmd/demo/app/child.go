package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a process that the demo runs. Its log is a file.
type child struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for; err is valid from then on
	err  error

	api, operator string // where it listens, as it says itself
}

// spawn starts a process that ends with this one, or, kept, does not.
func spawn(name, binary string, args, env []string, log string, kept bool) (*child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer f.Close() //nolint:errcheck // the process has its own
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = attributes(kept)
	c := &child{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel watches the thread that started a process, not the whole parent: it
		// has to live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// exitError is a process that ended by itself, or could not be used.
type exitError struct {
	child *child
	err   error
}

func (e *exitError) Error() string { return fmt.Sprintf("%s: %v", e.child.name, e.err) }
func (e *exitError) Unwrap() error { return e.err }

var errExited = errors.New("it ended, and should not have")

// ready waits until the process says where it listens and then that it is ready.
func (c *child) ready(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c.operator == "" {
			last = c.addresses()
		}
		if c.operator != "" {
			err := probe(ctx, "http://"+c.operator+"/readyz")
			if err == nil {
				return nil
			}
			if ctx.Err() == nil {
				last = err
			}
		}
		select {
		case <-c.done:
			return &exitError{c, errExited}
		case <-ctx.Done():
			return &exitError{c, fmt.Errorf("not ready after %s: %w", patience, last)}
		case <-tick.C:
		}
	}
}

// addresses finds in the log where the process listens: it chose its ports itself, so
// that no other process can take them in between.
func (c *child) addresses() error {
	f, err := os.Open(c.log)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ API, Operator string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.API != "" && event.Operator != "" {
			c.api, c.operator = event.API, event.Operator
			return nil
		}
	}
	return errors.New("it has not said where it listens")
}

func probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(body)))
	}
	return nil
}

// stopPatience is how long a process has to end in order.
const stopPatience = 10 * time.Second

// stop ends the process: asked first, then killed.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone, which done tells
	t := time.NewTimer(stopPatience)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// tail returns the last lines of the log.
func (c *child) tail() string {
	const lines = 15
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// watch returns an error when one of the processes ends before ctx does.
func watch(ctx context.Context, c *child) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.done:
		return &exitError{c, errExited}
	}
}
