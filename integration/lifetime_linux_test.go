package integration_test

import "syscall"

// dieWithParent makes the kernel kill a child when the thread that started it ends, in
// whatever way.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
