package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binaries are programs without the race detector, each built when the first test asks for it.
type binaries struct {
	mu   sync.Mutex
	dir  string
	made map[string]bool // by command
}

var built binaries

// path is the real dbcontroller, for tests that measure it or want all of what its main does.
func (b *binaries) path(t *testing.T) string {
	t.Helper()
	return b.make(t, "dbcontroller", "build", "dbcontroller.dev/cmd/dbcontroller")
}

// server is that of the samples.
func (b *binaries) server(t *testing.T) string {
	t.Helper()
	return b.make(t, "server", "build", "dbcontroller.dev/cmd/server")
}

// player is this test binary.
func (b *binaries) player(t *testing.T) string {
	t.Helper()
	return b.make(t, "player", "test", "dbcontroller.dev/integration", "-c")
}

func (b *binaries) make(t *testing.T, name, verb, of string, flags ...string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "dbcontroller-integration-bin-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.made = dir, map[string]bool{}
	}
	path := filepath.Join(b.dir, name)
	if !b.made[name] {
		args := append([]string{verb, "-o", path}, append(flags, of)...)
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		b.made[name] = true
	}
	return path
}

func (b *binaries) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
