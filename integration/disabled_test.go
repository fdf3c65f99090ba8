package integration_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestDisabledLater: a version that is disabled after the switch from it is kept in sync, and
// offered, until a controller that knows it leads; then it is neither, and nothing brings it
// back.
func TestDisabledLater(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	c := collections{t}
	c.insert(s.db["v1"], packagesKind, `{"_id":"a","section":"x"}`)
	old := s.controller("old", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return flipped("v2")(d) && upgradestate.ReverseSynced(d) })

	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Replace(string(text), "disabled: false", "disabled: true", 1)
	s.config = s.write("disabled.yaml", first)
	s.controller("new", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "old", "new")
	if d, err := s.record.Get(ctx); err != nil || !upgradestate.ReverseSynced(d) {
		t.Errorf("before the new controller leads: %v, offered is %v", err, d.Available)
	}
	s.kill(old)
	s.await(ctx, "the end of the rollback", func(d upgradestate.Deployment) bool { return len(d.Available) == 0 })
	s.awaitShards(ctx, "new")
	c.ok(s.db["v2"].Collection(packagesKind).InsertOne(ctx, c.document(`{"_id":"b","category":"y","schema":2}`)))
	s.controller("another", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "new", "another")
	d, err := s.record.Get(ctx)
	if err != nil || len(d.Available) != 0 {
		t.Errorf("%v: offered is %v", err, d.Available)
	}
	if err := c.find(s.db["v1"], packagesKind, `{"_id":"b","section":"y"}`); err == nil {
		t.Error("what was written after the end of the rollback has been synced")
	}
}
