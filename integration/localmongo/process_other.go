//go:build unix && !linux

package localmongo

import (
	"os/exec"
	"syscall"
)

// dieWithParent puts cmd in a process group of its own. Other systems have no
// parent death signal: there, a mongod outlives a parent that is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped trusts the signal: only Linux tells the states of threads.
func awaitStopped(int) error { return nil }
