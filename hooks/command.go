package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs a program for each event.
type command struct{ argv []string }

// NewCommand returns a Sender that runs a program with its arguments, without a shell. The
// event is its standard input, and its type and id are in the environment, of which it gets no
// more than what a program needs to run: ours holds passwords. What it prints is thrown away.
// It must end with status 0. When its time is over it is killed with all that it has started.
func NewCommand(argv []string) Sender { return &command{argv} }

// passedOn are the variables of our environment that a command gets.
var passedOn = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// outlives is how long what a command has started may keep us waiting after it was killed.
const outlives = time.Second

func (c *command) Send(ctx context.Context, e Event, body []byte) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Stdin = bytes.NewReader(body)
	cmd.Env = []string{"DBCONTROLLER_EVENT=" + string(e.Type), "DBCONTROLLER_EVENT_ID=" + e.ID, "DBCONTROLLER_DEPLOYMENT=" + e.Deployment}
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // its group
	cmd.WaitDelay = outlives
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil, errors.As(err, &ended) && ended.Success():
		return nil
	case ended != nil:
		return fmt.Errorf("it ends with %s", ended.ProcessState)
	default:
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// CheckCommand returns why a program cannot be run, or nil.
func CheckCommand(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		var at *os.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return errors.New("it is no program")
	}
	return nil
}
