package status_test

import (
	"testing"

	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// TestReplacedIsShown: a replaced collection is shown with its version, its identities, and how
// far the copy since is. What shards published of an earlier copy, or as an older controller does,
// is left out.
func TestReplacedIsShown(t *testing.T) {
	t.Parallel()
	s := upgrading(t)
	if r := status.Of(s, status.Process{}).Replaced; r != nil {
		t.Fatalf("nothing was replaced, and %v", r)
	}
	s.Record.Epoch = 3
	s.Record.Namespaces = []us.Namespace{
		{Version: "v1", Kinds: []us.Kind{{Kind: "orders", Fixed: true, Physical: "orders", ID: "new", Replaced: 2}}},
		{Version: "v2", Images: us.Images{Epoch: 3, TransformHash: "h", Generation: 2}},
	}
	s.Record.Anew = &us.Anew{Version: "v1", To: "v2", Epoch: 3, Kinds: []us.AnewKind{{Kind: "orders", Was: "old", At: "2026-11-27T08:00:00Z"}}}
	s.Progress = []syncer.Progress{
		{Shard: 0, Owner: "c", Epoch: 3, Generation: 2, State: "copying", Copied: 10, Total: 100},
		{Shard: 1, Owner: "c", Epoch: 3, Generation: 2, State: "following", Copied: 90, Total: 90},
		{Shard: 2, Owner: "c", Epoch: 3, Generation: 1, State: "ready", Copied: 1000, Total: 1000},
		{Shard: 3, Owner: "old", State: "ready", Copied: 1000, Total: 1000},
	}
	r := status.Of(s, status.Process{}).Replaced
	if r == nil || len(r.Kinds) != 1 {
		t.Fatalf("shown is %v", r)
	}
	if k := r.Kinds[0]; k.Kind != "orders" || k.Was != "old" || k.Id != "new" || k.At != "2026-11-27T08:00:00Z" {
		t.Errorf("the kind is %v", k)
	}
	if r.Version != "v1" || r.To != "v2" || r.Copied != 100 || r.Total != 190 || r.ReportingShards != 2 || r.ComparedShards != 1 {
		t.Errorf("shown is %v", r)
	}
}
