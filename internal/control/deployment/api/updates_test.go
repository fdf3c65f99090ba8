package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/upgradestate"
)

// A run is shown with what its shards have done that are not reported yet, each once, and
// with what controllers wait for.
func TestUpdateStatus(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v1", 4)
	d.Update = &upgradestate.Update{
		ID: "d-1", Name: "fill", Version: "v1", Kind: "items", Hash: "h", Done: []int{0},
		Count: upgradestate.UpdateCount{Seen: 10, Changed: 4},
	}
	shard := func(n int, seen, changed, failed int64) backfill.ShardProgress {
		sp := backfill.ShardProgress{Shard: n, Count: upgradestate.UpdateCount{Seen: seen, Changed: changed, Failed: failed}}
		if failed > 0 {
			sp.Example = "a: it is bad"
		}
		return sp
	}
	got := status.Of(deployment.State{Record: d, Updating: []backfill.Progress{
		{Owner: "other run", ID: "d-0", Total: 999, Shards: []backfill.ShardProgress{shard(1, 1000, 1000, 0)}, Waits: "nothing"},
		{Owner: "before", ID: "d-1", Total: 50, Shards: []backfill.ShardProgress{shard(2, 1, 1, 0)}},
		{Owner: "c1", ID: "d-1", Total: 50, Shards: []backfill.ShardProgress{shard(0, 10, 4, 0), shard(1, 5, 5, 2), shard(2, 7, 3, 0)}, Problem: "connection reset"},
		{Owner: "c2", ID: "d-1", Waits: "controller c2 has no task fill"},
	}}, status.Process{}).GetUpdate()
	want := &pb.DataUpdate{
		Id: "d-1", Name: "fill", Version: "v1", Kind: "items", DoneShards: 1, Seen: 22, Changed: 12, Total: 50,
		LastError: "2 records failed, such as a: it is bad; connection reset; controller c2 has no task fill",
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Update = nil
	if got := status.Of(deployment.State{Record: d}, status.Process{}).GetUpdate(); got != nil {
		t.Errorf("without a run: %v", got)
	}
}

// TestEncryptionStatus: a rotation says which kind it is at, and a namespace which keys its records
// are under, as the process that is asked has it.
func TestEncryptionStatus(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v1", 4)
	d.Namespaces = []upgradestate.Namespace{{Version: "v1", DeclinedKey: "a003"}, {Version: "v2"}}
	d.Update = &upgradestate.Update{ID: "d-1", Name: upgradestate.RotateKeys, Version: "v1", Kind: "b", Hash: "h", Key: "a002", Step: 1, Rest: []string{"c"}}
	known := map[string]*pb.Encryption{"v1": {Key: "a002", Keys: []string{"a001", "a002"}, Active: "a002"}}
	got := status.Of(deployment.State{Record: d}, status.Process{Encryption: known})
	wantUpdate := &pb.DataUpdate{Id: "d-1", Name: "rotate-keys", Version: "v1", Kind: "b", Key: "a002", DoneKinds: 1, Kinds: 3}
	if diff := cmp.Diff(wantUpdate, got.GetUpdate(), protocmp.Transform()); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	want := &pb.Encryption{Key: "a002", Keys: []string{"a001", "a002"}, Active: "a002", Declined: "a003"}
	if diff := cmp.Diff(want, got.GetNamespaces()[0].GetEncryption(), protocmp.Transform()); diff != "" {
		t.Errorf("v1 (-want +got):\n%s", diff)
	}
	if e := got.GetNamespaces()[1].GetEncryption(); e != nil || known["v1"].GetDeclined() != "" {
		t.Errorf("v2: %v; what was known is now %v", e, known)
	}
}
