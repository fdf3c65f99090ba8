//go:build unix && !linux

package subprocess

import "syscall"

// dieWithParent gives a process a group of its own: an interrupt of the terminal reaches the
// parent alone. There is no signal at a parent's death: a child outlives one that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
