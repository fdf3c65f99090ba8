package embedetcd_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/internal/coord/etcdfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, dir string) *embedetcd.Server {
	t.Helper()
	s, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func find(t *testing.T, dir string) *etcdcoord.Store {
	t.Helper()
	endpoints, err := etcdfile.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcdcoord.Open(t.Context(), etcdcoord.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	dir := t.TempDir()
	if _, err := etcdfile.Find(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Find before the first start: %v", err)
	}
	first := start(t, dir)
	if _, err := find(t, dir).Commit(t.Context(), nil, []coord.Op{{Key: "k", Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed in %s", time.Since(began))
	began = time.Now()
	second := start(t, dir)
	t.Logf("started again in %s", time.Since(began))
	if !slices.Equal(first.Endpoints(), second.Endpoints()) {
		t.Errorf("endpoints %v became %v", first.Endpoints(), second.Endpoints())
	}
	kv, err := find(t, dir).Get(t.Context(), "k")
	if err != nil || string(kv.Value) != "v" {
		t.Fatalf("Get after the restart = %v, %v", kv, err)
	}
}

// TestNobodyElseGetsIn: the address is a socket in a folder of our own, also where the data
// folder stands open to others, and where its path is too long for a socket.
func TestNobodyElseGetsIn(t *testing.T) {
	for name, dir := range map[string]string{
		"short": filepath.Join(shortDir(t), "data"), "long": filepath.Join(shortDir(t), strings.Repeat("long", 30)),
	} {
		if err := os.MkdirAll(filepath.Join(dir, "socket"), 0o755); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s := start(t, dir)
			path, isSocket := strings.CutPrefix(s.Endpoints()[0], "unix://")
			info, err := os.Stat(filepath.Dir(path))
			if err != nil || !isSocket {
				t.Fatalf("%s: endpoint %s: %v", name, s.Endpoints()[0], err)
			}
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s: the folder of the socket has mode %v", name, info.Mode())
			}
			if strings.HasPrefix(path, dir) != (name == "short") {
				t.Errorf("%s: the socket is %s", name, path)
			}
			if _, err := find(t, dir).Commit(t.Context(), nil, []coord.Op{{Key: "k"}}); err != nil {
				t.Error(err)
			}
			if ports := listening(t); len(ports) > 0 {
				t.Errorf("%s: ports are open: %v", name, ports)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if name == "long" {
				t.Cleanup(func() { os.RemoveAll(filepath.Dir(path)) }) //nolint:errcheck // among temporary files
			}
		}
	}
}

// shortDir is a folder whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // among temporary files
	return dir
}

// listening returns the TCP ports that this process listens on, where the system reports
// them.
func listening(t *testing.T) (ports []string) {
	t.Helper()
	own := map[string]bool{}
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // another system
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && own[f[9]] {
				ports = append(ports, f[1])
			}
		}
	}
	return ports
}

func TestSecondOwnerIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	_, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Fatalf("second Start: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	if _, err := embedetcd.Start(t.Context(), embedetcd.Config{}); err == nil {
		t.Error("Start without a directory succeeded")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir}); err == nil {
		s.Close() // it was ready before it looked
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("Start with its context over: %v", err)
	}
	start(t, dir) // a failed start leaves the directory free
}
