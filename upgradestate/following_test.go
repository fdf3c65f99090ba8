package upgradestate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

const placesName = "services/places/deployments/eu"

// pass is the event by which an update begins by itself.
func pass(id, version, after string, n int) us.BeginUpdate {
	return us.BeginUpdate{
		Update:  us.Update{ID: id, Name: "new", Hash: "h", Version: version, Kind: "a"},
		Follows: &us.Follows{Deployment: placesName, Version: "v2", Switch: after, Pass: n},
	}
}

// notNow checks that a pass does not begin, because the decision is outdated.
func (r *told) notNow(when string, e us.BeginUpdate) {
	r.t.Helper()
	if _, err := us.Apply(r.d, e); !errors.Is(err, us.ErrOutdated) {
		r.t.Errorf("%s: %s begins: %v", when, e.Update.ID, err)
	}
}

// seen ends the running pass, which found records of these numbers.
func (r *told) seen(changed, failed int64) {
	r.t.Helper()
	id := r.d.Update.ID
	r.apply("c-1", us.UpdateDone{ID: id, Shard: 0, Count: us.UpdateCount{Seen: 9, Changed: changed}})
	r.apply("c-2", us.UpdateDone{ID: id, Shard: 1, Count: us.UpdateCount{Seen: 9, Failed: failed}, Example: "x: it is bad"})
}

func (r *told) following() us.Following {
	r.t.Helper()
	f, ok := us.FollowingOf(r.d, "new")
	if !ok {
		r.t.Fatal("nothing follows")
	}
	return f
}

// TestFollowing: an update begins once for each switch that it follows, and goes over all records
// again until a pass finds nothing new.
func TestFollowing(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	r.notNow("before the first", pass("d0", "v1", "s1", 2))
	r.apply("c-1", pass("d1", "v1", "s1", 1))
	r.apply("c-1", pass("d1", "v1", "s1", 1)) // after an unknown outcome
	r.notNow("while it runs", pass("d2", "v1", "s1", 1))
	if e := r.d.History[0]; len(r.d.History) != 1 || e.Detail != "new over a, follows "+placesName+" to v2, pass 1" {
		t.Errorf("history: %+v", r.d.History)
	}
	if task, kind := r.d.History[0].Updated(); task != "new" || kind != "a" {
		t.Errorf("it is taken for %s over %s", task, kind)
	}
	r.seen(3, 0)
	want := us.Following{Task: "new", Deployment: placesName, Version: "v2", Switch: "s1", Epoch: 1, Run: "d1", Passes: 1, Changed: 3, Outcome: "done", Again: true}
	if f := r.following(); f != want || r.d.Update != nil {
		t.Errorf("%+v, want %+v", f, want)
	}
	r.notNow("again", pass("d2", "v1", "s1", 1))
	r.notNow("ahead", pass("d2", "v1", "s1", 3))
	r.apply("c-2", pass("d2", "v1", "s1", 2))
	if f := r.following(); f.Run != "d2" || f.Passes != 2 || f.Again || f.Outcome != "" || f.Changed != 3 {
		t.Errorf("the second: %+v", f)
	}
	r.seen(0, 0)
	if f := r.following(); f.Again || f.Changed != 3 || f.Outcome != "done" {
		t.Errorf("settled: %+v", f)
	}
	r.notNow("settled", pass("d3", "v1", "s1", 3))
	r.notNow("settled", pass("d3", "v1", "s1", 1))
	r.notNow("after another switch", pass("d3", "v1", "s2", 3))
	r.apply("c-1", pass("d3", "v1", "s2", 1))
	if f := r.following(); f.Switch != "s2" || f.Passes != 1 || f.Changed != 0 || len(r.d.Following) != 1 {
		t.Errorf("after another switch: %+v", r.d.Following)
	}
	r.apply("eve", us.CancelUpdate{Reason: "too slow"})
	if f := r.following(); f.Again || f.Outcome != "cancelled: too slow" {
		t.Errorf("cancelled: %+v", f)
	}
	r.notNow("cancelled", pass("d4", "v1", "s2", 2))
	r.apply("c-1", pass("d4", "v1", "s3", 1))
}

// TestFollowingEnds: passes end if the same records fail twice, and after the last one that may
// be.
func TestFollowingEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		changed, failed []int64
		passes          int
		outcome         string
	}{
		"nothing to do":       {[]int64{0}, []int64{0}, 1, "done"},
		"some fail":           {[]int64{7, 0}, []int64{2, 2}, 2, "not done: 2 records failed, such as x: it is bad"},
		"all fail":            {[]int64{0, 0}, []int64{9, 9}, 2, "not done: 9 records failed, such as x: it is bad"},
		"failures go away":    {[]int64{0, 2, 0}, []int64{2, 0, 0}, 3, "done"},
		"writers never adapt": {[]int64{5, 4, 3, 2, 1}, []int64{0, 0, 0, 0, 0}, us.MaxPasses, "given up after 5 passes, because the last one still found something: done"},
	} {
		r := newTold(t)
		passes := 0
		for passes < len(tc.changed) && (passes == 0 || r.following().Again) {
			r.apply("c-1", pass(fmt.Sprint("d", passes), "v1", "s1", passes+1))
			r.seen(tc.changed[passes], tc.failed[passes])
			passes++
		}
		if f := r.following(); f.Again || passes != tc.passes || f.Outcome != tc.outcome {
			t.Errorf("%s: %d passes, %+v", name, passes, f)
		}
	}
}

// TestFollowingMakesRoom: an update that begins by itself runs beside the copy of an upgrade, and
// not while this deployment switches, goes back or is restored.
func TestFollowingMakesRoom(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	first, second := pass("d1", "v1", "s1", 1), pass("d2", "v2", "s1", 1)
	second.Update.Name = "new-v2"
	r.apply("eve", us.BeginUpdate{Update: us.Update{ID: "d0", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}})
	r.notNow("another update runs", first)
	r.apply("eve", us.CancelUpdate{})
	r.notNow("another version serves", second)

	r.apply("eve", us.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"})
	r.apply("c-1", first)
	r.seen(1, 0)
	r.apply("c-1", us.Report{ID: "u1", State: us.InitialSyncing, Attempt: 1, Shards: []int{0, 1}})
	r.apply("c-1", us.StartSwitch{ID: "u1"})
	r.notNow("it switches", pass("d3", "v1", "s1", 2))
	r.switchOver()

	r.apply("c-1", second)
	r.apply("eve", us.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h"})
	f, _ := us.FollowingOf(r.d, "new-v2")
	if r.d.Update != nil || !f.Again || f.Outcome != "cancelled: upgrade u2 begins" {
		t.Errorf("beside the rollback: %+v, %+v", r.d.Update, f)
	}
	second.Update.ID, second.Follows.Pass = "d4", 2
	r.notNow("it goes back", second)
	r.apply("eve", us.Abort{Reason: "not yet"})
	r.apply("c-1", second)
	r.apply("eve", us.CancelUpdate{})

	// Another version follows, so an operator has to decide.
	r.apply("c-1", us.AnnounceAvailable{Available: us.Available{TargetVersion: "v1", TransformHash: "h", Precopied: true}})
	r.apply("c-1", us.FoundRestored{Restored: us.Restored{Version: "v2", What: "w"}, Epoch: r.d.Epoch})
	second.Follows.Switch, second.Follows.Pass = "s2", 1
	r.notNow("a restore is to be decided", second)
	if len(r.d.Following) != 2 {
		t.Errorf("it follows %+v", r.d.Following)
	}
	r.apply("eve", us.FollowRestored{Version: "v2", Epoch: r.d.Epoch})
	if len(r.d.Following) != 0 {
		t.Errorf("passes over records that the restore undid: %+v", r.d.Following)
	}
	r.apply("c-1", second)
}

// TestForwardUpgradeLeavesFollowing: only a rollback ends an update that began by itself, and no
// upgrade after a rollback does.
func TestForwardUpgradeLeavesFollowing(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	forward := func(id string) {
		t.Helper()
		r.apply("c-1", pass("p-"+id, "v1", "s-"+id, 1))
		r.apply("eve", us.Begin{ID: id, TargetVersion: "v2", TransformHash: "h"})
		if r.d.Update == nil {
			t.Errorf("upgrade %s ended it", id)
		}
		r.apply("eve", us.CancelUpdate{})
		r.apply("c-1", pass("q-"+id, "v1", "t-"+id, 1))
		r.apply("eve", us.CancelUpdate{})
		r.switchOver()
	}
	forward("u1")
	r.apply("eve", us.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h"})
	r.switchOver()
	forward("u3")
}

// TestFollowingMakesRoomForCollections: a pass may wait for a collection that is gone. It ends when the
// record takes over the collection in its place, and passes go over the records again. An operator
// decides about an update that an operator began.
func TestFollowingMakesRoomForCollections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*told)
		event   func(us.Deployment) us.Event
		outcome string
	}{
		"replaced": {func(*told) {}, func(d us.Deployment) us.Event {
			k := d.Namespaces[0].Kinds[1]
			return us.Replace{Collections: []us.Replaced{{Kind: k.Kind, Was: k.ID, Is: "new", Detail: "swapped"}}}
		}, "cancelled: a collection was replaced; 0 seen, 0 changed"},
		"made anew": {func(*told) {}, func(d us.Deployment) us.Event {
			k := d.Namespaces[0].Kinds[0]
			return us.Adopt{Epoch: d.Epoch, Collections: []us.Adopted{{Version: "v1", Kind: k.Kind, Was: k.ID, Is: "new"}}}
		}, "cancelled: a collection was made anew; 0 seen, 0 changed"},
		"restored": {func(r *told) {
			r.apply("c-1", us.FoundRestored{Restored: us.Restored{Version: "v1", What: "w"}, Epoch: r.d.Epoch})
		}, func(d us.Deployment) us.Event { return us.FollowRestored{Version: "v1", Epoch: d.Epoch} },
			"cancelled: the other version is rebuilt from the restored data; 0 seen, 0 changed"},
	} {
		r := &told{t: t}
		play(t, &r.d, "new v1 2\nnamespace v1 a:uuid b:fixed-view\nnamespace v2 a:uuid b:fixed-view")
		byHand := pass("d0", "v1", "", 0)
		byHand.Follows = nil
		for _, begin := range []us.BeginUpdate{byHand, pass("d1", "v1", "s1", 1)} {
			r.apply("c-1", begin)
			if begin.Follows != nil || name != "restored" {
				tc.prepare(r)
			}
			next, err := us.Apply(r.d, tc.event(r.d))
			refused := &us.RefusedError{}
			if begin.Follows == nil {
				if name != "restored" && (!errors.As(err, &refused) || next.Update == nil) {
					t.Errorf("%s beside an operator's update: %v", name, err)
				}
				r.apply("eve", us.CancelUpdate{})
				continue
			}
			if err != nil || next.Update != nil || len(next.Following) > 0 {
				t.Errorf("%s beside a pass: %v, %+v, %+v", name, err, next.Update, next.Following)
			}
			for _, e := range next.History {
				if e.ID == "d1" && e.Outcome != tc.outcome {
					t.Errorf("%s: the pass ended as %q", name, e.Outcome)
				}
			}
			r.apply("c-1", tc.event(r.d))
			r.apply("c-1", pass("d2", "v1", "s1", 1))
		}
	}
}

// TestFollowingAfterAReturn: after switches of this deployment the records may have other keys, so
// all of them are gone over again.
func TestFollowingAfterAReturn(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	r.apply("c-1", pass("d1", "v1", "s1", 1))
	r.seen(3, 0)
	for i, to := range []string{"v2", "v1"} {
		r.apply("eve", us.Begin{ID: fmt.Sprint("u", i), TargetVersion: to, TransformHash: "h"})
		r.switchOver()
	}
	r.notNow("it came back", pass("d2", "v1", "s1", 2))
	r.apply("c-1", pass("d2", "v1", "s1", 1))
	if f := r.following(); f.Passes != 1 || f.Changed != 0 || f.Epoch != r.d.Epoch {
		t.Errorf("after the return: %+v", f)
	}
	r.seen(0, 0)
	r.notNow("settled", pass("d3", "v1", "s1", 1))
}

// TestSwitchID: a switch that a recovery recorded without an ID is followed once, too.
func TestSwitchID(t *testing.T) {
	t.Parallel()
	for want, last := range map[string]*us.Switch{"": nil, "u1": {ID: "u1"}, "epoch 7": {To: "v2"}} {
		if got := us.SwitchID(us.Deployment{Epoch: 7, LastSwitch: last}); got != want {
			t.Errorf("%+v: %q, want %q", last, got, want)
		}
	}
}

// TestFollowingIsRefused: a caller's mistakes are errors that do not go away.
func TestFollowingIsRefused(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	kind := pass("d1", "v1", "s1", 1)
	kind.Update.Kind = "none"
	for want, e := range map[string]us.BeginUpdate{"switch that it follows": pass("d1", "v1", "", 1), "no kind none": kind} {
		refused := &us.RefusedError{}
		if _, err := us.Apply(r.d, e); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if len(r.d.Following) > 0 {
		t.Errorf("it follows %v", r.d.Following)
	}
}

// TestFollowingIsBounded: tasks come and go with configurations.
func TestFollowingIsBounded(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	for i := range 100 {
		e := pass(fmt.Sprint("d", i), "v1", "s1", 1)
		e.Update.Name = fmt.Sprint("new", i)
		r.apply("c-1", e)
		r.seen(0, 0)
	}
	if n := len(r.d.Following); n != us.MaxFollowing || r.d.Following[n-1].Task != "new99" {
		t.Errorf("%d entries", n)
	}
}

// TestStray: a pass is wrong once the other deployment went back, and not before.
func TestStray(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	if _, stray := us.Stray(r.d, placesName, "v1"); stray {
		t.Error("nothing runs")
	}
	r.apply("c-1", pass("d1", "v1", "s1", 1))
	for version, want := range map[string]bool{"v1": true, "v2": false, "v3": true} {
		if _, stray := us.Stray(r.d, placesName, version); stray != want {
			t.Errorf("%s is served: stray %t", version, stray)
		}
	}
	if _, stray := us.Stray(r.d, "services/people/deployments/eu", "v1"); stray {
		t.Error("it follows another deployment")
	}
	r.apply("eve", us.CancelUpdate{})
	byHand := pass("d2", "v1", "", 0)
	byHand.Follows = nil
	r.apply("eve", byHand)
	if _, stray := us.Stray(r.d, placesName, "v1"); stray {
		t.Error("an operator began it")
	}
}
