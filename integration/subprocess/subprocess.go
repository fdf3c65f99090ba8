// Package subprocess runs processes that must not outlive the one that starts them: the servers
// of tests and the programs of the demonstration. On Linux the kernel kills them with their
// parent, however that ends; elsewhere they are stopped in order only.
//
// It does not own what a process reads or writes, nor what its end means to the caller.
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

// Process is a started process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process was waited for
	err  error         // of its end; valid after done
}

// Start starts cmd, which dies with this process unless it says otherwise by attributes of
// its own.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = dieWithParent()
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread that started a process ends, and the
		// runtime ends threads as it likes: this one has to live as long as the process.
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

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait returns when the process has ended, with its code and what is wrong with that; the
// code of one that a signal ended is -1.
func (p *Process) Wait() (code int, err error) {
	<-p.done
	return p.cmd.ProcessState.ExitCode(), p.err
}

// Signal sends a signal. An error can mean that the process has just ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process at once, a stopped one too, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.Signal(os.Kill) // an error means that it ended by itself
	<-p.done
}

// Stop asks the process to end, and kills one that has not after a while.
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

// Addresses finds in a program's log where it listens: it chose its ports itself, so that no
// other process could take them in between.
func Addresses(log string) (api, operator string, err error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return "", "", err
	}
	for line := range bytes.Lines(text) {
		var said struct{ API, Operator string }
		if json.Unmarshal(line, &said) == nil && said.API != "" && said.Operator != "" {
			return said.API, said.Operator, nil
		}
	}
	return "", "", errors.New("it has not said where it listens")
}

// Tail returns the last lines of a log, or why it cannot be read.
func Tail(log string, lines int) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
