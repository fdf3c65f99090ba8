package integration_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// TestKillOnTheReverseSync kills the controller that drives a rollback under traffic, in the
// middle of its switch. What becomes of it is abandoned by an operator, and the service
// goes back in a second rollback, then forward again: nothing is lost, duplicated or
// resurrected on the way, and v1 follows v2 again in the end.
func TestKillOnTheReverseSync(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		at   breakPoint
		step upgradestate.Step
	}{
		{breakPoint{At: afterFence, N: 2, Back: true}, upgradestate.StepFence},
		{breakPoint{At: beforeFlip, N: 1, Back: true}, upgradestate.StepSealSource},
	} {
		t.Run(tc.at.At, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := newSystem(ctx, t, settings{})
			tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
			forward := s.controller("forward", breakPoint{}).ready(ctx)
			tr.start(ctx, s.server("server", 0).ready(ctx))
			tr.awaitWrites(ctx, "v1", 10)
			s.begin(ctx)
			s.await(ctx, "the flip", flipped("v2"))
			s.kill(forward)
			first := s.controller("first", tc.at).ready(ctx)
			eventually(ctx, t, "the first controller leads", func() error {
				if leader := s.leader(ctx); leader != "first" {
					return fmt.Errorf("leader is %q", leader)
				}
				return nil
			})
			s.controller("second", breakPoint{}).ready(ctx)
			s.awaitShards(ctx, "first", "second")
			tr.awaitWrites(ctx, "v2", 10)
			s.beginTo(ctx, "v1")
			first.awaitReached(ctx)
			d, err := s.record.Get(ctx)
			if err != nil || d.Upgrade == nil || d.Upgrade.Step != tc.step {
				t.Fatalf("the upgrade is %+v (%v), want step %s", d.Upgrade, err, tc.step)
			}
			s.kill(first)
			s.abort(ctx, d.Upgrade.ID)
			d = s.await(ctx, "the end of the abort", func(d upgradestate.Deployment) bool { return flipped("v2")(d) || flipped("v1")(d) })
			t.Logf("after the abort %s is active", d.CurrentVersion)
			for _, to := range []string{"v1", "v2"} {
				if d.CurrentVersion != to {
					s.beginTo(ctx, to)
				}
				d = s.await(ctx, "the flip to "+to, flipped(to))
				tr.awaitWrites(ctx, to, tr.packages.count(to)+10)
			}
			tr.settle(ctx, d)
			s.inSync(ctx, tr, "v1")
		})
	}
}

// abort aborts an upgrade, at whichever controller answers. One that is over by then is
// not aborted.
func (s *system) abort(ctx context.Context, id string) {
	s.t.Helper()
	eventually(ctx, s.t, "the abort is taken", func() error {
		err := errTooFew
		for _, api := range s.apis() {
			_, err = api.AbortUpgrade(ctx, connect.NewRequest(&dbv1.AbortUpgradeRequest{Name: s.name, UpgradeId: id, Reason: "for the test"}))
			if err == nil || connect.CodeOf(err) == connect.CodeFailedPrecondition {
				return nil
			}
		}
		return err
	})
}
