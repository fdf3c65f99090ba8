package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestThereAndBack switches to v2, back and forth again under traffic, with real processes:
// nothing is lost, duplicated or resurrected, no call fails, and in the end the old namespace
// holds what the new one does. TestChain goes back and forth more often.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	tr := newTraffic(ctx, s, fewDocuments)
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first", "second")
	server := s.server("server", 0).ready(ctx)
	tr.start(ctx, server)
	tr.awaitWrites(ctx, "v1", 10)
	for i, to := range []string{"v2", "v1", "v2"} {
		writes := tr.processes.count(to)
		packages := tr.packages.count(to)
		since := time.Now()
		s.beginTo(ctx, to)
		d := s.await(ctx, fmt.Sprintf("flip %d, to %s", i+1, to), flipped(to))
		took := time.Since(since)
		tr.await(ctx, to, writes+10, tr.processes)
		tr.await(ctx, to, packages+10, tr.packages)
		t.Logf("flip %d to %s: %s after begin-upgrade, phases %v", i+1, to, took.Round(time.Millisecond), d.LastSwitch.Millis)
		if d.LastSwitch.Position == "" {
			t.Errorf("flip %d: the position for the reverse sync is not known", i+1)
		}
		if d.Epoch != uint64(i)+2 {
			t.Errorf("flip %d: epoch %d", i+1, d.Epoch)
		}
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, d)
	s.inSync(ctx, tr, "v1")
}
