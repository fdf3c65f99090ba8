package localmongo

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// memoryFolder is a folder in memory on every Linux that has not been told otherwise.
	memoryFolder = "/dev/shm"
	tmpfsMagic   = 0x01021994
	// memoryRoom is how much memory must be free for data to be put there: several
	// clusters of several tests, and what they themselves need.
	memoryRoom = 6 << 30
)

// memoryDir returns the folder in memory if data may lie there, else "".
func memoryDir() string {
	// What killed processes have left takes the room that is looked for.
	sweep(memoryFolder, time.Now().Add(-sweepAge))
	var fs syscall.Statfs_t
	if syscall.Statfs(memoryFolder, &fs) != nil || fs.Type != tmpfsMagic || uint64(fs.Bsize)*fs.Bavail < memoryRoom {
		return ""
	}
	if info, err := os.ReadFile("/proc/meminfo"); err != nil || available(string(info)) < memoryRoom {
		return ""
	}
	const write = 2
	if syscall.Access(memoryFolder, write) != nil {
		return ""
	}
	return memoryFolder
}

// available reads from /proc/meminfo how many bytes could be used without swapping; 0 if
// it does not say.
func available(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}
