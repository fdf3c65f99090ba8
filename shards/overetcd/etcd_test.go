// Package overetcd_test has the tests of package shards over a real etcd. They are no tests of that
// package's own folder, for the go command gives those who use a package the modules that its
// tests need, and nobody needs an etcd server for that (integration.TestServiceOutsideTheTree).
package overetcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/shards"
)

// Three pools over a real etcd: they share the ring, a fourth part of it follows a
// member that ends, and what it held is refused afterwards.
func TestPoolsOverEtcd(t *testing.T) {
	const ring = 16
	const ttl = time.Hour // only a member that gives up its lease when it ends is followed within the test
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	changed := make(chan struct{}, 1)
	type node struct {
		store *etcdcoord.Store
		pool  *shards.Pool
		stop  func()
	}
	start := func(id string) node {
		t.Helper()
		store, err := etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: server.Endpoints(), Prefix: "test/"})
		if err != nil {
			t.Fatal(err)
		}
		n := node{store: store, pool: shards.New(store, shards.Config{Prefix: "d/", ID: id, Ring: ring, TTL: ttl})}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 2)
		go func() { ended <- n.pool.Run(running) }()
		go func() { // the engine: it lets go at once
			for {
				for _, s := range n.pool.Leaving() {
					if err := n.pool.Release(running, s); err != nil && running.Err() == nil {
						ended <- fmt.Errorf("release: %w", err)
						return
					}
				}
				select {
				case changed <- struct{}{}:
				default:
				}
				select {
				case <-n.pool.Changes():
				case <-running.Done():
					ended <- nil
					return
				}
			}
		}()
		n.stop = func() {
			stop()
			for range 2 {
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
		return n
	}
	shared := func(nodes ...node) bool {
		total := 0
		for _, n := range nodes {
			owned := len(n.pool.Owned())
			if owned < ring/len(nodes) || owned > ring/len(nodes)+1 || len(n.pool.Leaving()) > 0 {
				return false
			}
			total += owned
		}
		return total == ring
	}
	await := func(what string, nodes ...node) {
		t.Helper()
		for !shared(nodes...) {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, ctx.Err())
			}
		}
	}
	one, two := start("one"), start("two")
	await("two pools", one, two)
	three := start("three")
	await("three pools", one, two, three)

	before := three.pool.Owned()
	three.stop()
	await("two pools again", one, two)
	for _, l := range before {
		if _, err := one.store.Commit(ctx, []coord.Condition{l.Condition()}, nil); err == nil {
			t.Errorf("%+v holds after its owner ended", l)
		}
	}
	one.stop()
	two.stop()
}
