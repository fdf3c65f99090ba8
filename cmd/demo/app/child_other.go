//go:build !linux

package app

import "syscall"

// attributes give a process a group of its own. Only Linux can have it die with the demo.
func attributes(kept bool) *syscall.SysProcAttr {
	if kept {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}
