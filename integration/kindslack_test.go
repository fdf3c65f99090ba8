package integration_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// TestRollbackOfARemovedKind: a kind is removed from the configuration after the switch. The
// rollback would wait for it while it holds writes, and abort: it is refused before it begins.
func TestRollbackOfARemovedKind(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const boxes = ", {from: boxes, to: boxes, lens: packages.yaml}"
	s := newSystem(ctx, t, settings{service: "shop", kinds: "[{from: packages, to: packages, lens: packages.yaml}" + boxes + "]"})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	if _, err := s.db["v1"].Collection("boxes").InsertOne(ctx, packageDoc("v1", "b", 0)); err != nil {
		t.Fatal(err)
	}
	first := s.controller("first", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return flipped("v2")(d) && upgradestate.ReverseSynced(d) })
	if code := first.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(first)
	s.edit(replace(boxes, ""))
	s.controller("second", breakPoint{}).listening(ctx)
	_, err := s.apis()[0].BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: "v1"}))
	if err == nil || !strings.Contains(err.Error(), "boxes of v2") || !strings.Contains(err.Error(), "add them to kinds again") {
		t.Errorf("the rollback is not refused: %v", err)
	}
	if d, err := s.record.Get(ctx); err != nil || d.Upgrade != nil {
		t.Errorf("%v: an upgrade runs: %+v", err, d.Upgrade)
	}
}
