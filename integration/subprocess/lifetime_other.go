//go:build unix && !linux

package subprocess

import "syscall"

// dieWithParent gives the process its own group: an interrupt from the terminal reaches the parent
// only. This system sends no signal at a parent's death, so a child outlives a killed parent.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
