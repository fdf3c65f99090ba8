package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// run starts a controller as its command line does.
func (s *system) run(id string, args ...string) *child {
	s.t.Helper()
	args = append([]string{"run", "--config", s.config, "--id", id, "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}, args...)
	return s.adopt(spawn(s.t, id, command(s.t, roleCommand, args, s.env)))
}

// TestTerm ends one of two controllers with SIGTERM in the middle of the copy: it ends
// well, hands its shards over at once, and the other one goes on.
func TestTerm(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: false, workers: 2}"})
	copies := s.watchCopy(ctx)
	tr := newTraffic(ctx, s, documents)
	first, second := s.run("first"), s.run("second")
	first.ready(ctx)
	second.ready(ctx)
	s.awaitShards(ctx, "first", "second")
	tr.start(ctx, s.server("server", 0).ready(ctx))
	s.pace(ctx, 100) // the copy is not over before the signal comes, however slow this machine is
	s.begin(ctx)
	owners := s.owners(ctx)
	eventually(ctx, t, "the first controller has copied something", func() error {
		if copies.copied(func(shard string) bool { return owners[shard] == "first" }) == 0 {
			return errTooFew
		}
		return nil
	})
	all := func(string) bool { return true }
	if n := copies.copied(all); n >= documents {
		t.Errorf("%d records were copied already, SIGTERM should have come before", n)
	}
	asked := time.Now()
	if code := first.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	ended := time.Since(asked)
	for shard, owner := range s.owners(ctx) {
		if owner == "first" {
			t.Errorf("shard %s waits for the lease of an owner that has ended well", shard)
		}
	}
	s.awaitShards(ctx, "second")
	t.Logf("ended %s after SIGTERM, all shards handed over after %s", ended.Round(time.Millisecond), time.Since(asked).Round(time.Millisecond))
	s.forget(first)
	s.pace(ctx, 0)
	d := s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 10)
	tr.settle(ctx, d)
	if n := copies.copied(all); n < documents-appClients*ownDocuments {
		t.Errorf("%d records are stored as copied", n)
	}
	if code := second.terminate(patience); code != 0 {
		t.Errorf("exit code %d of the controller that switched", code)
	}
	if fmt.Sprint(s.owners(ctx)) != "map[]" {
		t.Errorf("shards are owned though nobody runs: %v", s.owners(ctx))
	}
}
