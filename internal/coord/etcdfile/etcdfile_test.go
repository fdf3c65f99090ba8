package etcdfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/internal/coord/etcdfile"
)

// TestFileOfAnotherUser: a neighbour who can write the data folder, or the file in it, leads no process
// to another etcd.
func TestFileOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := etcdfile.Publish(dir, "unix:///etcd"); err != nil {
		t.Fatal(err)
	}
	if at, err := etcdfile.Find(dir); err != nil || !slices.Equal(at, []string{"unix:///etcd"}) {
		t.Fatalf("%v, %v", at, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Chmod(files[0], 0o620); err != nil {
		t.Fatal(err)
	}
	if at, err := etcdfile.Find(dir); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that others can write: %v, %v", at, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	if err := os.Chmod(files[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(files[0], 12345, -1); err != nil {
		t.Fatal(err)
	}
	if at, err := etcdfile.Find(dir); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("a file of another user: %v, %v", at, err)
	}
}
