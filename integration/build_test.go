package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binary is the real dbcontroller, and the server of the samples, built without the race
// detector, for tests that measure it or want all of what its main does. All other tests run
// the test binary itself.
type binary struct {
	mu  sync.Mutex
	dir string
}

var built binary

func (b *binary) path(t *testing.T) string { return filepath.Join(b.folder(t), "dbcontroller") }

func (b *binary) server(t *testing.T) string { return filepath.Join(b.folder(t), "server") }

func (b *binary) folder(t *testing.T) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "dbcontroller-integration-bin-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir = dir
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "dbcontroller.dev/cmd/dbcontroller", "dbcontroller.dev/cmd/server").CombinedOutput()
		if err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	return b.dir
}

func (b *binary) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
