package localmongo

import (
	"os/exec"
	"runtime"
)

// process is a started mongod. It dies with us; see dieWithParent.
type process struct {
	cmd *exec.Cmd
	// done is closed once the process was waited for; err is its outcome and
	// must be read after that only.
	done chan struct{}
	err  error
}

// startProcess starts cmd and waits for its end on the same operating system
// thread. The kernel sends the parent death signal when the *thread* that
// started the process ends, and the Go runtime ends threads as it likes, so the
// goroutine keeps its thread until the process is gone.
func startProcess(cmd *exec.Cmd) (*process, error) {
	dieWithParent(cmd)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once and returns when it is gone. A paused process
// is killed too.
func (p *process) kill() {
	// An error means that it ended by itself, which done tells as well.
	_ = p.cmd.Process.Kill()
	<-p.done
}
