package app

import "syscall"

// attributes give a process a group of its own, so that an interrupt of the terminal
// reaches the demo alone, which then stops everything in order. One that is not kept is
// killed by the kernel when the demo dies.
func attributes(kept bool) *syscall.SysProcAttr {
	if kept {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
