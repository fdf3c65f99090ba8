package blevesink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// metaFile is the file of bleve that each of its indexes has.
const metaFile = "index_meta.json"

// discard deletes the folder of an index. It refuses any other folder: a wrong path in a
// configuration must not cost anybody their files.
func discard(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return notIndex(folder)
	case err != nil:
		return err
	case len(entries) == 0:
		return os.Remove(folder)
	}
	meta := filepath.Join(folder, metaFile)
	if info, err := os.Lstat(meta); err != nil || !info.Mode().IsRegular() {
		return notIndex(folder)
	}
	for _, e := range entries {
		if e.Name() == metaFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	// The last file, so that a process killed before leaves a folder that can be discarded.
	if err := os.Remove(meta); err != nil {
		return err
	}
	return os.Remove(folder)
}

// errNotIndex reports a folder with files of others.
var errNotIndex = errors.New("is not a search index: choose another search.folder")

func notIndex(folder string) error { return fmt.Errorf("%s %w", folder, errNotIndex) }

// lock takes the lock file beside a folder. Without it, two processes could open a folder that one of
// them makes anew.
func lock(folder string) (*os.File, error) {
	for {
		f, err := os.OpenFile(folder+".lock", os.O_CREATE|os.O_RDWR, 0o600) // #nosec G304 -- the folder of the configuration
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // #nosec G115 -- a file descriptor is small
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("%s: %w", folder, ErrInUse), f.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		// The former owner may have deleted the file before this lock was taken.
		held, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(f.Name()); err == nil && os.SameFile(held, now) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}
