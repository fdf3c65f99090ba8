package engines

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// TestStoppedShards: whatever a shard was said to be, once its sync has stopped it is stopped, for
// the reason, with the counts that were known and no lag. Shards of others are left out.
func TestStoppedShards(t *testing.T) {
	t.Parallel()
	lag := int64(3)
	known := []syncer.Progress{
		{Shard: 0, Owner: "c1", State: "ready", Copied: 7, Total: 7, Rate: 2, LagMillis: &lag, Version: "v1"},
		{Shard: 1, Owner: "c2", State: "ready", Copied: 9},
	}
	whole := stoppedShards("c1", []int{1}, known, errors.New(strings.Repeat("é", 1000)))
	if p := whole[0]; p.Copied != 0 || len(p.WaitsFor) > 1100 || !strings.HasSuffix(p.WaitsFor, "é ...") {
		t.Errorf("of a long reason, and of a shard that another controller had: %+v", p)
	}
	ps := stoppedShards("c1", []int{0, 2}, known, errors.New("orders is gone"))
	if len(ps) != 2 || ps[0].Shard != 0 || ps[0].Copied != 7 || ps[1].Shard != 2 {
		t.Fatalf("%+v", ps)
	}
	for _, p := range ps {
		if p.Owner != "c1" || p.State != syncer.StateStopped || p.Rate != 0 || p.LagMillis != nil || p.Version != "" ||
			p.Code != us.BlockController || !strings.Contains(p.WaitsFor, "has stopped") || !strings.Contains(p.WaitsFor, "orders is gone") || p.LastError != "" {
			t.Errorf("shard %d: %+v", p.Shard, p)
		}
	}
}

// TestStoppedIsShown: the shards that have stopped are counted until an engine runs.
func TestStoppedIsShown(t *testing.T) {
	t.Parallel()
	var e running
	e.stop([]syncer.Progress{{Shard: 1, State: syncer.StateStopped}})
	if ps := e.progress(); len(ps) != 1 || ps[0].State != syncer.StateStopped {
		t.Errorf("%+v", ps)
	}
	e.replace(&syncer.Engine{})
	if ps := e.progress(); len(ps) != 0 {
		t.Errorf("an engine runs, and %+v", ps)
	}
}
