// Package subprocess runs processes that must not outlive their parent: the servers of tests and
// the programs of the demonstration. On Linux the kernel kills them with their parent, however the
// parent ends. On other systems they stop only if the parent stops them.
//
// The package does not own the input and output of a process, nor the meaning of its exit. Begin to
// read at Start.
//
// It is not for users and may change with any version.
package subprocess

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a started process. Its methods may be called concurrently.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after cmd.Wait
	err  error         // result of cmd.Wait; valid after done
}

// Start starts cmd. It dies with this process, unless cmd has attributes of its own.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = dieWithParent()
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that started the process ends, and the
		// Go runtime ends threads at will. This thread must therefore live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process is still running.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the process. It returns its exit code, -1 after a signal, and the error
// of cmd.Wait.
func (p *Process) Wait() (code int, err error) {
	<-p.done
	return p.cmd.ProcessState.ExitCode(), p.err
}

// Signal sends a signal. An error can mean that the process has just ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process, even a stopped one, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(os.Kill) // an error means that it ended by itself
	<-p.done
}

// Stop sends SIGTERM, and kills the process if it has not ended within patience. It reports whether
// the process ended in time.
func (p *Process) Stop(patience time.Duration) (inTime bool) {
	_ = p.Signal(syscall.SIGTERM) // an error means that it ended by itself
	select {
	case <-p.done:
		return true
	case <-time.After(patience):
		p.Kill()
		return false
	}
}

// Addresses finds a program's listen addresses in its log. The program chooses its own ports,
// because a port chosen by the parent could be taken before the program binds it.
func Addresses(log string) (api, operator string, err error) {
	text, err := os.ReadFile(log) // #nosec G304 -- a log that the caller has made
	if err != nil {
		return "", "", err
	}
	for line := range bytes.Lines(text) {
		// A line of the log that is no JSON, or has no addresses, is not the one that announces
		// them.
		var said struct{ API, Operator string }
		if json.Unmarshal(line, &said) == nil && said.API != "" && said.Operator != "" {
			return said.API, said.Operator, nil
		}
	}
	return "", "", errors.New("it has not said where it listens")
}

// Tail returns the last lines of a log, or the error of reading it.
func Tail(log string, lines int) string {
	text, err := os.ReadFile(log) // #nosec G304 -- a log that the caller has made
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
