package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command runs a program for each event.
type command struct{ argv []string }

// NewCommand returns a Sender that runs a program with its arguments, without a shell. The program
// reads the event from its standard input. The environment holds the event's type and id, and only
// the variables that a program needs to run, because ours may hold passwords. Its output is
// discarded. It must exit with status 0. After the timeout it is killed together with its children.
func NewCommand(argv []string) Sender { return &command{argv} }

// passedOn lists the variables of our environment that a command receives.
var passedOn = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// outlives bounds the wait for children that survive the kill.
const outlives = time.Second

func (c *command) Send(ctx context.Context, e Event, body []byte) error {
	return RunCommand(ctx, c.argv, []string{"DBCONTROLLER_EVENT=" + string(e.Type), "DBCONTROLLER_EVENT_ID=" + e.ID, "DBCONTROLLER_DEPLOYMENT=" + e.Deployment}, body)
}

// RunCommand runs a program with few variables of our environment, those in env, and a standard
// input. Its output is discarded. It returns an error unless the program exits with status 0. When
// ctx ends, it kills the program together with its children.
func RunCommand(ctx context.Context, argv, env []string, stdin []byte) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // #nosec G204 -- the configuration names the program, and no shell runs it
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = slices.Clone(env)
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	// A process group of its own, so that the kill reaches the program's children too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the whole group
	// A surviving child may keep the pipes open, and Run would wait for it.
	cmd.WaitDelay = outlives
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	// The program succeeded; only a child kept its output open.
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
		return errors.New("it is not a program")
	}
	return nil
}
