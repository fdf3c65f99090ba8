package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"dbcontroller.dev/integration/subprocess"
)

// child is a process of the demo. It logs to a file.
type child struct {
	*subprocess.Process
	name string
	log  string

	api, operator string // addresses, from its log
}

// spawn starts a process. It ends with this process, unless kept is set.
func spawn(name, binary string, args, env []string, log string, kept bool) (*child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // #nosec G304 -- a log in a folder of the demo
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer f.Close()                      //nolint:errcheck // the process has its own
	cmd := exec.Command(binary, args...) // #nosec G204 -- a program that the demo has built
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = f, f
	// A session of its own keeps the terminal's interrupt from ending a kept process.
	if kept {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &child{Process: p, name: name, log: log}, nil
}

// exitError reports a process that ended by itself or could not be used.
type exitError struct {
	child *child
	err   error
}

func (e *exitError) Error() string { return fmt.Sprintf("%s: %v", e.child.name, e.err) }
func (e *exitError) Unwrap() error { return e.err }

var errExited = errors.New("it ended, and should not have")

// ready waits until the process has logged its addresses and reports that it is ready.
func (c *child) ready(ctx context.Context, patience time.Duration) error {
	return c.await(ctx, patience, func(ctx context.Context) (err error) {
		// The process logs its addresses when its ports are open.
		if c.operator == "" {
			if c.api, c.operator, err = subprocess.Addresses(c.log); err != nil {
				return err
			}
		}
		return probe(ctx, "http://"+c.operator+"/readyz")
	})
}

// await calls check until it succeeds, patience is over or the process ends.
func (c *child) await(ctx context.Context, patience time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// Keep the last real answer: the error of the expired context has no information.
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-c.Done():
			return &exitError{c, errExited}
		case <-ctx.Done():
			return &exitError{c, fmt.Errorf("not ready after %s: %w", patience, last)}
		case <-tick.C:
		}
	}
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

// stopPatience is the time for a process to end in order.
const stopPatience = 10 * time.Second

// stop asks the process to end, and kills it after stopPatience.
func (c *child) stop() { c.Stop(stopPatience) }

// watch returns an error if the process ends before ctx does.
func watch(ctx context.Context, c *child) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return &exitError{c, errExited}
	}
}
