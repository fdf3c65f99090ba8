//go:build unix

package access

import (
	"io/fs"
	"syscall"
)

// inodeOf tells a file from another that took its name within one tick of the clock.
func inodeOf(info fs.FileInfo) any {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return nil
}
