//go:build unix

package watchedfile

import (
	"os"
	"syscall"
)

// hasModes reports whether the modes of files show who can write them.
const hasModes = true

// ours reports whether a file belongs to root or to the user of this process.
func ours(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}
