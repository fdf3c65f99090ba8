package localmongo

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// memoryFolder is an in-memory file system on almost any Linux.
	memoryFolder = "/dev/shm"
	tmpfsMagic   = 0x01021994
	// memoryRoom is the free memory required for data in memory. It covers several clusters of
	// several tests, and the tests themselves.
	memoryRoom = 6 << 30
)

// memoryDir returns the in-memory folder if there is room for data, else "".
func memoryDir() string {
	// Leftovers of killed processes would count as used memory.
	sweep(memoryFolder, time.Now().Add(-sweepAge))
	var fs syscall.Statfs_t
	if syscall.Statfs(memoryFolder, &fs) != nil || fs.Type != tmpfsMagic || uint64(fs.Bsize)*fs.Bavail < memoryRoom {
		return ""
	}
	if info, err := os.ReadFile("/proc/meminfo"); err != nil || available(string(info)) < memoryRoom {
		return ""
	}
	// W_OK of access(2): a container may mount the folder read-only.
	const write = 2
	if syscall.Access(memoryFolder, write) != nil {
		return ""
	}
	return memoryFolder
}

// available returns the bytes usable without swapping, from /proc/meminfo; 0 if the file lacks
// them.
func available(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}
