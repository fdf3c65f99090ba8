package subprocess

import "syscall"

// dieWithParent has the kernel kill a process when the thread that started it ends, and gives
// it a group of its own: an interrupt of the terminal reaches the parent alone, which then
// stops its children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
