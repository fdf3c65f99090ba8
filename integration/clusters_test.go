package integration_test

import (
	"context"
	"testing"

	"dbcontroller.dev/integration/localmongo"
)

// TestUpgradeTwoClusters moves a service from one MongoDB cluster to another, under
// traffic on both paths. The clusters have clocks of their own.
func TestUpgradeTwoClusters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other := start(ctx, t, localmongo.Options{Own: true})
	s := newSystem(ctx, t, settings{uris: map[string]string{"v2": other.URI()}})
	copies := s.watchCopy(ctx)
	tr := newTraffic(ctx, s, documents)
	s.run("first").ready(ctx)
	s.run("second").ready(ctx)
	a, b := s.server("a", 0), s.server("b", 0)
	tr.start(ctx, a.ready(ctx), b.ready(ctx))
	tr.awaitWrites(ctx, "v1", 20)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 20)
	tr.settle(ctx, d)
	begun, switches := copies.started()
	pause, n := tr.processes.pause(begun)
	t.Logf("write pause of the BBS API %s (of %d writes), switches %d, %v", pause, n, switches, d.LastSwitch.Millis)
}
