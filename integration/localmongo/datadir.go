package localmongo

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	dataPrefix = "dbcontroller-mongo-"
	lockName   = "owner.lock"
	// sweepAge protects a folder that its owner has created but not locked yet.
	sweepAge = time.Minute
)

// dataDir is a temporary folder that this process owns as long as it holds the folder's lock. The
// kernel drops the lock when the process dies, which tells a later process that the data are
// unused. A process id could not tell that: containers that share a folder have separate ids.
type dataDir struct {
	path string
	lock *os.File
}

// makeDataDir creates a folder below parent, and removes the folders of dead owners.
func makeDataDir(parent string) (*dataDir, error) {
	if parent == "" {
		parent = memoryDir()
	}
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent, time.Now().Add(-sweepAge))
	path, err := os.MkdirTemp(parent, dataPrefix)
	if err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := tryLock(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR)
	if err != nil {
		_ = os.RemoveAll(path) // the folder is empty; the lock's error matters
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return &dataDir{path: path, lock: lock}, nil
}

func (d *dataDir) remove() error {
	// The lock is held until the folder is gone, so that no sweep competes.
	defer d.lock.Close()
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove data folder: %w", err)
	}
	return nil
}

// sweep removes folders below parent that are older than before and have no living owner. It is
// best effort: folders that it cannot remove stay.
func sweep(parent string, before time.Time) {
	found, _ := filepath.Glob(filepath.Join(parent, dataPrefix+"*"))
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || info.ModTime().After(before) {
			continue
		}
		// A living owner holds this lock. A folder without a lock file lost its owner before the
		// lock.
		lock, err := tryLock(filepath.Join(path, lockName), os.O_RDWR)
		if err != nil && !os.IsNotExist(err) {
			continue
		}
		_ = os.RemoveAll(path)
		if lock != nil {
			_ = lock.Close() // nothing was written
		}
	}
}

// tryLock opens path and locks it. It fails at once if another process holds the lock.
func tryLock(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0o600) // #nosec G304 -- a lock in a folder of this package
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		// The lock is another process's, or the system cannot lock. In both cases the folder is not
		// ours.
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
