// Package overetcd_test tests package etcdcoord with a real etcd. The tests need the modules of an
// etcd server. In etcdcoord's own folder they would add these modules to the go.sum of every
// module that imports it (integration.TestServiceOutsideTheTree).
package overetcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/coordtest"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startEtcd(t testing.TB) *embedetcd.Server {
	t.Helper()
	server, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: t.TempDir(), PasswordCost: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func open(t testing.TB, cfg etcdcoord.Config) *etcdcoord.Store {
	t.Helper()
	s, err := etcdcoord.Open(t.Context(), cfg)
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

// Stores of the suite share a server, apart by prefix, but for the cases that compact,
// which would disturb the others.
func TestConformance(t *testing.T) {
	server := startEtcd(t)
	var n atomic.Int64
	coordtest.Exercise(t, func(t *testing.T) coord.Store {
		at := server
		if strings.Contains(t.Name(), "Compact") {
			at = startEtcd(t)
		}
		return newSuite(t, etcdcoord.Config{Endpoints: at.Endpoints(), Prefix: fmt.Sprintf("test/%d/", n.Add(1))})
	})
}

func TestPrefixesAreApart(t *testing.T) {
	server := startEtcd(t)
	ctx := t.Context()
	one := open(t, etcdcoord.Config{Endpoints: server.Endpoints(), Prefix: "one/"})
	all := open(t, etcdcoord.Config{Endpoints: server.Endpoints()})
	if _, err := one.Commit(ctx, nil, []coord.Op{{Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Get(ctx, "k"); !errors.Is(err, coord.ErrNotFound) {
		t.Fatalf("Get without the prefix: %v", err)
	}
	if kvs, _, err := all.List(ctx, ""); err != nil || len(kvs) != 1 || kvs[0].Key != "one/k" {
		t.Fatalf("List of everything = %v, %v", kvs, err)
	}
}

// An etcd that is not there is one clear line, in time.
func TestOpenUnreachable(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	began := time.Now()
	_, err := etcdcoord.Open(t.Context(), etcdcoord.Config{
		Endpoints: []string{endpoint}, DialTimeout: time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), endpoint) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("Open = %v, want one line with the endpoint", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Fatalf("Open took %s", took)
	}
	t.Log(err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: []string{endpoint}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Open with its context over: %v", err)
	}
	_, err = etcdcoord.Open(t.Context(), etcdcoord.Config{
		Endpoints: []string{endpoint}, DialTimeout: time.Second, Username: "u", Password: func() (string, error) { return "p", nil },
	})
	if err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Fatalf("Open with a password = %v", err)
	}
	if _, err := etcdcoord.Open(t.Context(), etcdcoord.Config{}); err == nil {
		t.Fatal("Open without endpoints succeeded")
	}
}

// Close ends what runs.
func TestClose(t *testing.T) {
	server := startEtcd(t)
	ctx := t.Context()
	s, err := etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Grant(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, _, w, err := s.Follow(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil, []coord.Op{{Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(ctx); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := w.Next(ctx)
		result <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, coord.ErrClosed) {
		t.Fatalf("Next of a closed store: %v", err)
	}
	<-l.Done()
}

// A watch and a lease outlive a restart of the server.
func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, etcdcoord.Config{Endpoints: server.Endpoints()})
	l, err := s.Grant(ctx, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, _, w, err := s.Follow(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	rev, err := s.Commit(ctx, nil, []coord.Op{{Key: "k", Lease: l.ID()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := s.Commit(short, nil, []coord.Op{{Key: "away"}}); !errors.Is(err, coord.ErrUnknown) {
		t.Fatalf("Commit while etcd is away: %v", err)
	}
	server, err = embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	next, err := s.Commit(ctx, []coord.Condition{{Key: "k", Create: true, Revision: rev}}, []coord.Op{{Key: "back", Lease: l.ID()}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if events[len(events)-1].KV.Mod == next {
			break
		}
	}
	select {
	case <-l.Done():
		t.Fatal("the lease did not outlive the restart")
	default:
	}
}

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	store, err := etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: server.Endpoints(), Prefix: "app/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	rev, err := store.Commit(ctx, []coord.Condition{{Key: "leader"}}, []coord.Op{{Key: "leader", Value: []byte("me")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	kv, err := store.Get(ctx, "leader")
	fmt.Println(string(kv.Value), kv.Create == rev, err)
	// Output: me true <nil>
}
