package localmongo

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSweepRemovesOnlyWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	owned, err := makeDataDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	abandoned, err := makeDataDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	abandoned.lock.Close() // as the kernel does when the owner dies
	other := filepath.Join(parent, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}

	sweep(parent, time.Now().Add(-time.Hour))
	if !exists(abandoned.path) {
		t.Error("a young folder was removed, its owner may not have locked it yet")
	}
	sweep(parent, time.Now().Add(time.Hour))
	if exists(abandoned.path) {
		t.Error("the abandoned folder is still there")
	}
	if !exists(owned.path) || !exists(other) {
		t.Error("a folder was removed that somebody owns")
	}
	if err := owned.remove(); err != nil || exists(owned.path) {
		t.Errorf("remove: %v, still there: %v", err, exists(owned.path))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
