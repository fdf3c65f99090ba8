package forward_test

import (
	"testing"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/forward"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// sees waits for a message with a pause that has this reason.
func sees(t *testing.T, watch <-chan *pb.Deployment, reason, region string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case d, ok := <-watch:
			if !ok {
				t.Fatalf("the watch ended before it showed %q", reason)
			}
			if d.GetPace().GetReason() == reason {
				if d.Region != region {
					t.Errorf("region %q", d.Region)
				}
				return
			}
		case <-limit:
			t.Fatalf("the watch does not show %q", reason)
		}
	}
}

// pause changes the record of a deployment.
func pause(t *testing.T, store coord.Store, name, reason string) {
	t.Helper()
	paused := true
	if _, err := deployment.New(store, name, deployment.Config{}).Apply(t.Context(), upgradestate.SetPace{Paused: &paused, Reason: &reason}); err != nil {
		t.Fatal(err)
	}
}

// TestWatchGoesOn: the watch of a forwarded deployment goes on at the next owner, here while there is none,
// and at a new one.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	store := etcd(t, ours, theirs)
	a := start(t, store, setup{id: "a", runs: []string{ours}})
	b := start(t, store, setup{id: "b", runs: []string{theirs}})
	c := start(t, store, setup{id: "c", runs: []string{theirs}})
	eventually(t, "a forwards", func() error {
		a.call(t, "", "GetDeployment", named{"name": theirs}, nil)
		return arrivedCall("GetDeployment", b, c)
	})
	watch := a.watch(t, theirs)
	pause(t, store, theirs, "first")
	sees(t, watch, "first", "")
	first, second := b, c
	if b.count("WatchDeployment") == 0 {
		first, second = c, b
	}
	first.stop() // its announcement stays for a while
	pause(t, store, theirs, "second")
	sees(t, watch, "second", "")
	if second.count("WatchDeployment") == 0 {
		t.Error("the other owner was not watched")
	}
	first.end()
	second.end()
	pause(t, store, theirs, "third")
	sees(t, watch, "third", "")
	d := start(t, store, setup{id: "d", runs: []string{theirs}})
	eventually(t, "the watch is at the new owner", func() error { return arrivedCall("WatchDeployment", d) })
	pause(t, store, theirs, "fourth")
	sees(t, watch, "fourth", "")
}

// TestWatchOfARegionGoesOn: at the next controller of the region.
func TestWatchOfARegionGoesOn(t *testing.T) {
	t.Parallel()
	store := etcd(t, far)
	b, c := start(t, store, setup{id: "b", runs: []string{far}}), start(t, store, setup{id: "c", runs: []string{far}})
	a := start(t, etcd(t, ours), setup{id: "a", runs: []string{ours}, regions: []forward.Region{region("eu", b.url, c.url)}})
	watch := a.watch(t, far)
	pause(t, store, far, "first")
	sees(t, watch, "first", "eu")
	if b.count("WatchDeployment") == 0 {
		t.Fatal("the first controller is not watched")
	}
	b.end()
	pause(t, store, far, "second")
	sees(t, watch, "second", "eu")
}
