package deployment_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

func TestPlanIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	if _, found, err := w.Store.LoadPlan(t.Context(), dir); found || err != nil {
		t.Fatalf("found %t, %v", found, err)
	}
	got := make([]syncer.Plan, 8)
	var g errgroup.Group
	for i := range got {
		c := w.Coord.Client()
		c.OnCommit(deploymenttest.Once([]memcoord.Fault{memcoord.Deliver, memcoord.LoseRequest, memcoord.LoseAnswer}[i%3]))
		g.Go(func() (err error) {
			got[i], err = deployment.New(c, name, deployment.Config{}).CreatePlan(t.Context(), dir, syncer.Plan{
				Start:  record.Position{At: record.Version{byte(i)}, Token: []byte{byte(i)}},
				Ranges: map[string][]record.Range{"packages": {{To: record.Cursor("m")}, {From: record.Cursor("m")}}},
				Totals: map[string]int64{"packages": int64(i)},
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	stands, found, err := w.Store.LoadPlan(t.Context(), dir)
	if err != nil || !found {
		t.Fatalf("found %t, %v", found, err)
	}
	for _, p := range got {
		if diff := cmp.Diff(stands, p); diff != "" {
			t.Errorf("not the one that stands (-stands +got):\n%s", diff)
		}
	}
	if _, found, err := w.Store.LoadPlan(t.Context(), dir+"/x"); found || err != nil {
		t.Errorf("another direction: found %t, %v", found, err)
	}
}

// TestCheckpointsOfManyShards: each commit stays small, and compares the locks of the
// shards that it saves.
func TestCheckpointsOfManyShards(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	const shards = 200
	cs := map[int]syncer.Checkpoint{}
	session := deploymenttest.Lock(deploymenttest.Put(t, w.Coord, deploymenttest.Key("controllers/me"), ""))
	conditions := []coord.Condition{session}
	for i := range shards {
		cs[i] = syncer.Checkpoint{Count: int64(i), Position: record.Position{At: record.Version{byte(i)}}, Done: []string{"packages/1"}}
		conditions = append(conditions, deploymenttest.Lock(deploymenttest.Put(t, w.Coord, deploymenttest.Key(fmt.Sprintf("shards/%05d", i)), "me")))
	}
	commits := 0
	w.Coord.OnCommit(func(conds []coord.Condition, ops []coord.Op) memcoord.Fault {
		commits++
		if len(conds)+len(ops) > coord.MaxOps {
			t.Errorf("%d conditions and %d operations", len(conds), len(ops))
		}
		locks := map[string]bool{}
		for _, c := range conds {
			locks[c.Key[strings.LastIndexByte(c.Key, '/')+1:]] = true
		}
		for _, op := range ops {
			if !locks[op.Key[strings.LastIndexByte(op.Key, '/')+1:]] || !locks["me"] {
				t.Errorf("%s is saved without its lock", op.Key)
			}
		}
		if commits%2 == 0 {
			return memcoord.LoseAnswer
		}
		return memcoord.Deliver
	})
	if err := w.Store.SaveCheckpoints(t.Context(), dir, cs, conditions...); err != nil {
		t.Fatal(err)
	}
	w.Coord.OnCommit(nil)
	for i := range shards {
		c, found, err := w.Store.LoadCheckpoint(t.Context(), dir, i)
		if err != nil || !found || c.Count != int64(i) {
			t.Fatalf("shard %d: %+v, found %t, %v", i, c, found, err)
		}
	}
	conditions[7].Revision--
	err := w.Store.SaveCheckpoints(t.Context(), dir, map[int]syncer.Checkpoint{6: {Count: 99}}, conditions[7])
	if !errors.Is(err, deployment.ErrOwnership) {
		t.Errorf("lost lock: %v, want ErrOwnership", err)
	}
	if c, _, err := w.Store.LoadCheckpoint(t.Context(), dir, 6); err != nil || c.Count != 6 {
		t.Errorf("after it: %+v, %v", c, err)
	}
}

func TestLargeCheckpointsAreSavedInSeveralCommits(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	cs := map[int]syncer.Checkpoint{}
	for i := range 10 {
		cs[i] = syncer.Checkpoint{Position: record.Position{Token: make([]byte, 300_000)}}
	}
	if err := w.Store.SaveCheckpoints(t.Context(), dir, cs); err != nil {
		t.Fatal(err)
	}
	if _, found, err := w.Store.LoadCheckpoint(t.Context(), dir, 9); err != nil || !found {
		t.Errorf("found %t, %v", found, err)
	}
}

func TestProgressIsThatOfTheLatestOwner(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a, b := deploymenttest.Lease(t, w.Coord), deploymenttest.Lease(t, w.Coord)
	publish := func(owner string, l coord.Lease, ps ...syncer.Progress) {
		t.Helper()
		if err := w.Store.PublishProgress(t.Context(), owner, ps, l.ID()); err != nil {
			t.Fatal(err)
		}
	}
	publish("b", b, syncer.Progress{Shard: 1, Owner: "b", Copied: 5})
	publish("a", a, syncer.Progress{Shard: 0, Owner: "a"}, syncer.Progress{Shard: 1, Owner: "a", Copied: 7})
	ps, err := w.Store.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]syncer.Progress{{Shard: 0, Owner: "a"}, {Shard: 1, Owner: "a", Copied: 7}}, ps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Coord.Expire(a.ID())
	if ps, err = w.Store.Progress(t.Context()); err != nil || len(ps) != 1 || ps[0].Owner != "b" {
		t.Errorf("after a died: %+v, %v", ps, err)
	}
	if err := w.Store.PublishProgress(t.Context(), "a", nil, a.ID()); !errors.Is(err, coord.ErrLeaseLost) {
		t.Errorf("under a lost lease: %v", err)
	}
}

func TestForgetBefore(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	const dir, other = "9-v1-v2-h", "10-v2-v1-h"
	for _, d := range []syncer.DirectionKey{dir, other} {
		if _, err := w.Store.CreatePlan(t.Context(), d, syncer.Plan{}); err != nil {
			t.Fatal(err)
		}
		cs := map[int]syncer.Checkpoint{}
		for i := range 100 {
			cs[i] = syncer.Checkpoint{}
			if err := w.Store.Park(t.Context(), deploymenttest.Parked(d, i%4, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Store.SaveCheckpoints(t.Context(), d, cs); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Store.ForgetBefore(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	kvs, _, err := w.Coord.List(t.Context(), deploymenttest.Key(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if strings.Contains(kv.Key, "/"+dir) {
			t.Errorf("%s is still there", kv.Key)
		}
	}
	if len(kvs) != 1+1+100+100 {
		t.Errorf("%d keys are left, want the record and the other direction", len(kvs))
	}
}

func TestParkAndWaive(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	count := func() int {
		t.Helper()
		n, err := deployment.ForDriver{Store: w.Store}.Parked(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 3 {
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, i%2, i)); err != nil {
			t.Fatal(err)
		}
	}
	// Of another direction: an earlier hash, whose failures are no longer true.
	if err := w.Store.Park(t.Context(), deploymenttest.Parked("1-v1-v2-h0", 0, 9)); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 3 {
		t.Errorf("%d block, want 3", n)
	}
	list, err := w.Store.Parked(t.Context(), dir, 0)
	if err != nil || len(list) != 2 {
		t.Errorf("shard 0: %+v, %v", list, err)
	}
	p, err := w.Store.Waive(t.Context(), "packages", "p-1")
	if err != nil || !p.Waived || p.Key != "p-1" || count() != 2 {
		t.Errorf("waive: %+v, %v, %d left", p, err, count())
	}
	// Parked again, it stays waived; its error is the new one.
	again := deploymenttest.Parked(dir, 1, 1)
	again.Error = "another reason"
	if err := w.Store.Park(t.Context(), again); err != nil || count() != 2 {
		t.Errorf("parked again: %v, %d left", err, count())
	}
	if list, err = w.Store.Parked(t.Context(), dir, 1); err != nil || len(list) != 1 || list[0].Error != "another reason" {
		t.Errorf("shard 1: %+v, %v", list, err)
	}
	_, err = w.Store.Waive(t.Context(), "packages", "p-9")
	var unknown *deployment.NotParkedError
	if !errors.As(err, &unknown) || unknown.Total != 3 {
		t.Fatalf("unknown name: %v", err)
	}
	for _, name := range []string{"packages/p-9 is not parked", "packages/p-0", "packages/p-1", "packages/p-2"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	for _, p := range []syncer.Parked{deploymenttest.Parked(dir, 0, 0), deploymenttest.Parked(dir, 0, 2), deploymenttest.Parked(dir, 1, 1), deploymenttest.Parked(dir, 0, 77)} {
		if err := w.Store.Unpark(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 0 {
		t.Errorf("%d block, want none", n)
	}
	if _, err := w.Store.Waive(t.Context(), "packages", "p-9"); err == nil || err.Error() != "packages/p-9 is not parked: no record is" {
		t.Errorf("nothing parked: %v", err)
	}
}

func TestParkUnderALock(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	mine := deploymenttest.Lock(deploymenttest.Put(t, w.Coord, deploymenttest.Key("shards/00001"), "me"))
	w.Coord.OnCommit(deploymenttest.Once(memcoord.LoseAnswer))
	if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 1, 1), mine); err != nil {
		t.Fatal(err)
	}
	mine.Revision--
	for _, i := range []int{1, 2} {
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 1, i), mine); !errors.Is(err, deployment.ErrOwnership) {
			t.Errorf("lost lock: %v, want ErrOwnership", err)
		}
	}
}

// TestParkedOverflow: more than MaxParked do not fill the store, do block the switch, and
// cannot be waived away.
func TestParkedOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t).WithVersions(t)
		const beyond = 25
		for i := range deployment.MaxParked + beyond {
			if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 3, i)); err != nil {
				t.Fatal(err)
			}
		}
		list, err := w.Store.Parked(t.Context(), dir, 3)
		if err != nil || len(list) != deployment.MaxParked+1 {
			t.Fatalf("%d are listed, %v", len(list), err)
		}
		over := list[len(list)-1]
		if !deployment.IsOverflow(over) || over.Shard != 3 || over.Waived {
			t.Fatalf("the last is %+v", over)
		}
		if _, err := w.Store.Waive(t.Context(), list[0].Kind, list[0].Key); err != nil { // one that is listed can be
			t.Fatal(err)
		}
		if _, err := w.Store.Waive(t.Context(), over.Kind, over.Key); err == nil {
			t.Error("the overflow was waived")
		}
		if n, err := (deployment.ForDriver{Store: w.Store}).Parked(t.Context()); err != nil || n != deployment.MaxParked {
			t.Errorf("%d block, %v", n, err)
		}
		// One that is listed is fixed: there is room, and the overflow stays.
		if err := w.Store.Unpark(t.Context(), list[0]); err != nil {
			t.Fatal(err)
		}
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 3, 5000)); err != nil {
			t.Fatal(err)
		}
		if list, err = w.Store.Parked(t.Context(), dir, -1); err != nil || len(list) != deployment.MaxParked+1 {
			t.Errorf("%d are listed, %v", len(list), err)
		}
		if err := w.Store.Unpark(t.Context(), over); err != nil {
			t.Fatal(err)
		}
		if list, err = w.Store.Parked(t.Context(), dir, -1); err != nil || len(list) != deployment.MaxParked || deployment.IsOverflow(list[len(list)-1]) {
			t.Errorf("after the overflow is gone %d are listed, %v", len(list), err)
		}
		// It comes back at once.
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 3, 6000)); err != nil {
			t.Fatal(err)
		}
		if list, err = w.Store.Parked(t.Context(), dir, -1); err != nil || !deployment.IsOverflow(list[len(list)-1]) {
			t.Errorf("no overflow, %v", err)
		}
	})
}

// TestParkedOverflowOfLongNames: what is listed is bounded by its size as well.
func TestParkedOverflowOfLongNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t).WithVersions(t)
		for i := range 40 {
			p := deploymenttest.Parked(dir, 3, i)
			p.Group = fmt.Sprintf("%04d", i) + strings.Repeat("x", 100<<10)
			if i < 20 {
				p.Group = fmt.Sprintf("%04d", i)
			}
			if err := w.Store.Park(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		list, err := w.Store.Parked(t.Context(), dir, 3)
		if n := len(list); err != nil || n < 25 || n > 32 || !deployment.IsOverflow(list[n-1]) {
			t.Fatalf("%d are listed, %v", n, err)
		}
	})
}
