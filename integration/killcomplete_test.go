package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// afterDrop: the N-th Drop was done, and is not known to be.
const afterDrop = "after the drop"

func (ns *breaking) Drop(ctx context.Context, tok record.Token) error {
	err := ns.Namespace.Drop(ctx, tok)
	b := ns.breaker
	b.mu.Lock()
	b.done[afterDrop]++
	there := b.point.At == afterDrop && b.done[afterDrop] >= b.point.N
	if there {
		b.reached()
	}
	b.mu.Unlock()
	if there {
		b.stand()
	}
	return err
}

// TestKillInComplete kills the controller that drops an old namespace, half way, and starts
// another one. Nothing but the old namespace is dropped. simulation.TestRetirement has one there
// already.
func TestKillInComplete(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	first := s.controller("first", breakPoint{At: afterDrop, N: 1}).ready(ctx)
	eventually(ctx, t, "the first controller leads", func() error {
		if leader := s.leader(ctx); leader != "first" {
			return fmt.Errorf("leader is %q", leader)
		}
		return nil
	})
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 10)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	confirm, _ := api.Confirmation(d, "v1")
	api, _ := first.addresses()
	r := execute(ctx, t, []string{"DBCONTROLLER_SERVER=" + api}, "complete", "--version", "v1", "--ignore-usage", "--keep-for", "0s", "--confirm", confirm)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if place := first.awaitReached(ctx); place != afterDrop {
		t.Fatalf("reached %q", place)
	}
	if d, err := s.record.Get(ctx); err != nil || d.Retire == nil {
		t.Fatalf("%+v, %v", d.Retire, err)
	}
	s.kill(first)
	s.controller("first-again", breakPoint{}).ready(ctx)
	d = s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
	names, err := s.db["v1"].ListCollectionNames(ctx, bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "view"}}}})
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "system.") }) {
		t.Errorf("v1 still has %v, %v", names, err)
	}
	tr.awaitWrites(ctx, "v2", tr.processes.count("v2")+20)
	tr.settle(ctx, d)
}
