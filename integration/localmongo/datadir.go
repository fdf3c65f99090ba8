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
	// sweepAge protects a folder whose owner has made but not yet locked it.
	sweepAge = time.Minute
)

// dataDir is a temporary folder that belongs to this process as long as it
// holds the lock in it. The kernel drops the lock when the process dies, which
// is how a later process knows that nobody needs the data any longer; a process
// id would not tell that across containers that share a folder.
type dataDir struct {
	path string
	lock *os.File
}

// makeDataDir makes a folder below parent and removes those whose owners died.
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
		_ = os.RemoveAll(path) // still empty; the lock error is the news
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return &dataDir{path: path, lock: lock}, nil
}

func (d *dataDir) remove() error {
	defer d.lock.Close()
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove data folder: %w", err)
	}
	return nil
}

// sweep removes the folders below parent that were made before the given time
// and have no living owner. It is housekeeping: what it cannot remove stays.
func sweep(parent string, before time.Time) {
	found, _ := filepath.Glob(filepath.Join(parent, dataPrefix+"*"))
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || info.ModTime().After(before) {
			continue
		}
		lock, err := tryLock(filepath.Join(path, lockName), os.O_RDWR)
		if err != nil && !os.IsNotExist(err) {
			continue
		}
		_ = os.RemoveAll(path)
		if lock != nil {
			lock.Close()
		}
	}
}

// tryLock opens path and takes its lock, or fails at once.
func tryLock(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
