package identity_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// lives are fence classes and the steps at which the first switch is aborted; "": it is not.
var lives = map[record.FenceClass][]upgradestate.Step{
	record.FenceView:      {"", upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain, upgradestate.StepSealTarget, upgradestate.StepSealSource},
	record.FenceValidator: {"", upgradestate.StepDrain, upgradestate.StepSealSource},
}

// life is a switch, forth and back, one that is aborted at a step, and a third one.
func life(w *world, abortAt upgradestate.Step, stop int, each func(n int, what string)) (stopped bool) {
	noted := map[string]bool{}
	n := 0
	run := func(id, to string, abort upgradestate.Step) bool {
		w.apply(upgradestate.Begin{ID: id, TargetVersion: to, TransformHash: "h"})
		for {
			if u := w.d.Upgrade; u != nil && abort != "" && u.Step == abort {
				w.apply(upgradestate.Abort{ID: id, Reason: "test"})
				abort = ""
			}
			what := w.step(noted)
			if what == "" {
				return false
			}
			n++
			each(n, fmt.Sprintf("%s: %s", id, what))
			if n == stop {
				return true
			}
		}
	}
	offer := func(to string) {
		w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: "h"}})
	}
	if run("first", "v2", abortAt) {
		return true
	}
	if abortAt != "" && run("second", "v2", "") {
		return true
	}
	offer("v1")
	return run("back", "v1", "")
}

// TestRecoverAnywhere loses etcd after every single step of a life, and has the deployment
// rebuilt: the version that clients could write last is the current one, or, of a switch that
// was under way, either of the two; its collections are where the record has them, and
// clients can write them; and a switch goes through afterwards.
func TestRecoverAnywhere(t *testing.T) {
	for class, aborts := range lives {
		for _, abort := range aborts {
			t.Run(fmt.Sprintf("%s/%s", class, abort), func(t *testing.T) {
				t.Parallel()
				for stop := 1; ; stop++ {
					w := newWorld(t, class)
					last, at := w.writable(), ""
					stopped := life(w, abort, stop, func(_ int, what string) {
						at = what
						if v := w.writable(); v != "" {
							last = v
						}
					})
					if !stopped {
						break
					}
					recoverAt(t, w, fmt.Sprintf("step %d, %s", stop, at), last)
				}
			})
		}
	}
}

// TestSwitchByRecoverHasID: other deployments that follow this one recognize a switch by its id.
func TestSwitchByRecoverHasID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	life(w, "", 0, func(int, string) {})
	other := map[string]string{"v1": "v2", "v2": "v1"}[w.d.CurrentVersion]
	d, _, err := must(identity.Gather(t.Context(), deploymentName, w.markers())).Rebuild(other)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("recover-%d-%s", d.Epoch, other); d.LastSwitch == nil || d.LastSwitch.To != other || d.LastSwitch.ID != want {
		t.Errorf("the switch is %+v, want id %s", d.LastSwitch, want)
	}
}

func recoverAt(t *testing.T, w *world, at, last string) {
	t.Helper()
	ctx := t.Context()
	before := w.d
	settled := before.Upgrade == nil || before.Upgrade.State != upgradestate.Switching
	w.none = true
	var mismatch *identity.MismatchError
	if err := identity.Unlived(ctx, deploymentName, w.markers()); !errors.As(err, &mismatch) {
		t.Fatalf("%s: databases that have lived would be started anew: %v", at, err)
	}
	e, err := identity.Gather(ctx, deploymentName, w.markers())
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	current, why, err := e.Current("")
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if settled && current != before.CurrentVersion {
		t.Fatalf("%s: recovers %s (%s), and %s is the current version", at, current, why, before.CurrentVersion)
	}
	if current != last && (settled || current != before.Upgrade.TargetVersion || before.Upgrade.Step != upgradestate.StepSealSource) && !(settled && w.writableBefore(before) == "") {
		t.Fatalf("%s: recovers %s (%s), and clients wrote %s last", at, current, why, last)
	}
	d, _, err := e.Rebuild(current)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	// It dies in the middle, and is asked again.
	w.ok(identity.Announce(ctx, d, "r1", w.markers()))
	if e, err = identity.Gather(ctx, deploymentName, w.markers()); err != nil {
		t.Fatal(err)
	}
	again, _, err := e.Current("")
	if err != nil || again != current {
		t.Fatalf("%s: asked again it recovers %s, before it was %s: %v", at, again, current, err)
	}
	if d, _, err = e.Rebuild(current); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	w.ok(identity.Announce(ctx, d, "r2", w.markers()))
	// An etcd that comes back later is an old one.
	w.none = false
	if err := w.check(); !errors.As(err, &mismatch) {
		t.Fatalf("%s: the etcd that was lost is taken for good: %v", at, err)
	}
	d.Revision, w.d = before.Revision+1, d
	if err := w.check(); err != nil {
		t.Fatalf("%s: stored and not finalized: %v", at, err)
	}
	w.ok(identity.Finalize(ctx, d, w.markers()))
	if err := w.check(); err != nil {
		t.Fatalf("%s: finalized: %v", at, err)
	}
	noted := map[string]bool{}
	for w.step(noted) != "" {
	}
	if v := w.writable(); v != current {
		t.Fatalf("%s: recovered %s, and clients can write %q: %+v", at, current, v, w.d)
	}
	if err := w.check(); err != nil {
		t.Fatalf("%s: opened: %v", at, err)
	}
	to := map[string]string{"v1": "v2", "v2": "v1"}[current]
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: "h"}})
	w.apply(upgradestate.Begin{ID: "after", TargetVersion: to, TransformHash: "h"})
	for what := "begin"; what != ""; what = w.step(noted) {
		if err := w.check(); err != nil {
			t.Fatalf("%s: recovered, then %s: %v", at, what, err)
		}
	}
	if v := w.writable(); v != to {
		t.Fatalf("%s: a switch to %s after it leads to %q", at, to, v)
	}
}

// writableBefore is where clients could write by a record.
func (w *world) writableBefore(d upgradestate.Deployment) string {
	if version, places := upgradestate.WritePlaces(d); len(places) > 0 {
		return version
	}
	return ""
}

// TestRestoredAnywhere restores every earlier record of a life at its end, and at the end of
// the switch in the middle of which it was: it is refused, unless it is what the databases
// say.
func TestRestoredAnywhere(t *testing.T) {
	for class, aborts := range lives {
		for _, abort := range aborts {
			t.Run(fmt.Sprintf("%s/%s", class, abort), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, class)
				type kept struct {
					what string
					d    upgradestate.Deployment
				}
				var earlier []kept
				accepted := 0
				life(w, abort, 0, func(n int, what string) {
					if err := w.check(); err != nil {
						t.Fatalf("%d %s: a record of now is refused: %v", n, what, err)
					}
					now := w.d
					for _, k := range earlier {
						if w.writableBefore(now) == "" {
							break // nobody has written since: it may go on from there
						}
						w.d = k.d
						w.d.Revision = now.Revision + 1
						if w.check() == nil && dangerous(k.d, now) {
							t.Errorf("after %s: etcd restored to %s is taken for good", what, k.what)
						}
						accepted++
					}
					w.d = now
					earlier = append(earlier, kept{what, now})
				})
				if accepted < 50 {
					t.Errorf("only %d restored records were tried", accepted)
				}
			})
		}
	}
}

// dangerous reports whether going on from an earlier record can lose what was written since:
// it has another current version, other names, or is in the middle of a switch that is over.
// One that can only go on to the flip that was made, or to the end of the abort that was,
// loses nothing.
func dangerous(then, now upgradestate.Deployment) bool {
	u := then.Upgrade
	if u != nil && u.Step == upgradestate.StepSealSource && now.LastSwitch != nil && now.LastSwitch.ID == u.ID {
		return false
	}
	if then.CurrentVersion != now.CurrentVersion || then.Epoch != now.Epoch {
		return true
	}
	if u != nil && u.State == upgradestate.Switching && u.Step != upgradestate.StepHold && u.Step != upgradestate.StepAbort {
		return true
	}
	a, _ := then.Namespace(then.CurrentVersion)
	b, _ := now.Namespace(now.CurrentVersion)
	for i, k := range a.Kinds {
		if is := b.Kinds[i].Physical; k.Physical != is && (k.Pending == nil || k.Pending.To != is) {
			return true
		}
	}
	return false
}

// TestForgedNumbers: a mark whose numbers no deployment reaches is refused before it is counted on from.
func TestForgedNumbers(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]bson.M{
		"epoch": {"epoch": int64(1<<63 - 1)},
		"next":  {"next": bson.M{"id": "x", "attempt": 1, "epoch": int64(1<<63 - 1), "to": "v2"}},
		"state": {"state": `{"name":"d","namespaces":[{"version":"v1","kinds":[{"kind":"accounts","nextSeq":18446744073709551615}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, record.FenceView)
			noted := map[string]bool{}
			for w.step(noted) != "" {
			}
			owner := record.Owner{Deployment: deploymentName, Version: "v1"}
			marks, err := w.db["v1"].Marks(t.Context())
			w.ok(err)
			for _, m := range marks {
				if m.Owner != owner {
					continue
				}
				var body bson.M
				w.ok(bson.Unmarshal(m.Body, &body))
				maps.Copy(body, forge)
				m.Body, err = bson.Marshal(body)
				w.ok(err)
				w.ok(w.db["v1"].PutMark(t.Context(), m))
			}
			databases := map[string]record.Marker{}
			for v, db := range w.db {
				databases[v] = db
			}
			if _, err := identity.Gather(t.Context(), deploymentName, databases); err == nil || !strings.Contains(err.Error(), "the mark of v1 was not written by a controller") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCopyOfAnother: a mark that somebody else wrote holds the copy of another deployment. The record and
// the marks of that one would be overwritten.
func TestCopyOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	marks, err := w.db["v1"].Marks(t.Context())
	w.ok(err)
	for _, m := range marks {
		var mark identity.Mark
		w.ok(bson.Unmarshal(m.Body, &mark))
		if mark.State == "" {
			continue // a beat
		}
		mark.State = strings.Replace(mark.State, deploymentName, "services/a/deployments/other", 1)
		m.Body, err = bson.Marshal(mark)
		w.ok(err)
		w.ok(w.db["v1"].PutMark(t.Context(), m))
	}
	e, err := identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	if d, _, err := e.Rebuild("v1"); err == nil || !strings.Contains(err.Error(), "it holds a copy of services/a/deployments/other: restore it") {
		t.Errorf("%s is rebuilt: %v", d.Name, err)
	}
}
