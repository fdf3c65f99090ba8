package subprocess

import "syscall"

// dieWithParent makes the kernel kill the process when the thread that started it ends. It also
// gives the process its own group: an interrupt from the terminal reaches the parent only, which
// then stops its children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
