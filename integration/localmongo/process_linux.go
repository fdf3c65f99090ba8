package localmongo

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd when we die in whatever way, and
// puts it in a process group of its own, so that a Ctrl-C in the terminal
// reaches us alone and we stop the server in order.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
