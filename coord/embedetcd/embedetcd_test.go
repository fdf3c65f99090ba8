package embedetcd_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller/coord"
	"dbcontroller/coord/embedetcd"
	"dbcontroller/coord/etcdcoord"
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
	endpoints, err := embedetcd.Find(dir)
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

func TestRestartKeepsDataAndPort(t *testing.T) {
	dir := t.TempDir()
	if _, err := embedetcd.Find(dir); !errors.Is(err, fs.ErrNotExist) {
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

// Where the old port was taken meanwhile, another one is found, and found by others.
func TestRestartWithPortTaken(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	if _, err := find(t, dir).Commit(t.Context(), nil, []coord.Op{{Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	squatter, err := net.Listen("tcp", strings.TrimPrefix(first.Endpoints()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	second := start(t, dir)
	if slices.Equal(first.Endpoints(), second.Endpoints()) {
		t.Fatal("the taken port was used")
	}
	if _, err := find(t, dir).Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
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
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	_, err = embedetcd.Start(t.Context(), embedetcd.Config{Dir: dir, ClientURL: "http://" + taken.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("Start at a taken address: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir}); err == nil {
		s.Close() // it was ready before it looked
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("Start with its context over: %v", err)
	}
	start(t, dir) // a failed start leaves the directory free
}
