package following

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	dt "dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// world is a deployment of books. Its records refer to those of another deployment, places.
type world struct {
	dt.World // places
	t        *testing.T
	books    *deployment.Store
	refuse   error // of May
}

func newWorld(t *testing.T) *world {
	w := &world{World: dt.New(t).WithVersions(t), t: t}
	w.books = deployment.New(w.Coord, "services/books/deployments/eu", deployment.Config{})
	if _, err := w.books.Create(t.Context(), "v1", 1); err != nil {
		t.Fatal(err)
	}
	w.do(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "mongo:books", Identity: upgradestate.Identity{Cluster: "replicaSet/c1", Database: "d9"},
		Kinds: []upgradestate.Kind{{Kind: "books", Fixed: true, Physical: "books", ID: "k1", Fence: "view"}},
	}})
	return w
}

// follower is one controller of books, with tasks of these names.
func (w *world) follower(names ...string) *Follower {
	var tasks []transform.Task
	for _, name := range names {
		keys := map[string]transform.Keys{"new": transform.NewKeys, "old": transform.OldKeys}[name]
		tasks = append(tasks, transform.Task{
			Name: name, Version: "v1", Kind: "books", Follow: true, Imports: []transform.Import{{Service: "places", Kind: "packages", Keys: keys}},
			Func: func(record.Record) (bson.Raw, error) { return nil, nil },
		})
	}
	return New(Parts{
		Deployments: deployment.New(w.Coord, w.books.Name(), deployment.Config{}), Tasks: tasks, Log: zap.NewNop(),
		Import: func(service string) (preflight.Import, bool) {
			return preflight.Import{Service: "places", Deployment: dt.Name, Older: "v1", Newer: "v2"}, service == "places"
		},
		May: func(context.Context, transform.Task) error { return w.refuse },
	})
}

func (w *world) do(e upgradestate.Event) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.books.Apply(w.t.Context(), e)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) get() upgradestate.Deployment {
	w.t.Helper()
	d, err := w.books.Get(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// look has a controller look once, and returns the record afterwards.
func (w *world) look(f *Follower) upgradestate.Deployment {
	w.t.Helper()
	if err := f.step(w.t.Context(), w.get()); err != nil {
		w.t.Fatal(err)
	}
	return w.get()
}

// runs checks which passes have begun so far, each as task and pass, and which one runs.
func (w *world) runs(running string, want ...string) {
	w.t.Helper()
	d := w.get()
	var got []string
	for _, e := range d.History {
		if task, _ := e.Updated(); task != "" {
			_, n, _ := strings.Cut(e.Detail, ", pass ")
			got = append(got, task+" "+n)
		}
	}
	now := ""
	if d.Update != nil {
		now = d.Update.Name
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") || now != running {
		w.t.Fatalf("passes %v, %q runs, want %v, %q", got, now, want, running)
	}
}

// end ends the running pass, which changed so many records.
func (w *world) end(changed int64) {
	w.t.Helper()
	w.do(upgradestate.UpdateDone{ID: w.get().Update.ID, Shard: 0, Count: upgradestate.UpdateCount{Seen: 9, Changed: changed}})
}

// waits checks the condition that a task waits for.
func (w *world) waits(f *Follower, task, want string) {
	w.t.Helper()
	for _, s := range f.Shown() {
		if s.GetTask() == task {
			if s.GetWaitsFor() != want {
				w.t.Errorf("%s waits for %q, want %q", task, s.GetWaitsFor(), want)
			}
			return
		}
	}
	w.t.Errorf("%s is not shown", task)
}

// TestThereAndBack: each switch is followed once, by whichever controller looks, until a pass finds
// nothing new.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.look(f)
	w.runs("")
	w.waits(f, "new", "a switch of "+dt.Name+" to v2")
	w.waits(f, "old", "a switch of "+dt.Name+" to v1") // there was none: v1 serves from the beginning

	w.SwitchTo(t, "u1", "v2")
	w.look(f)
	w.runs("new", "new 1")
	w.look(f)
	restarted := w.follower("new", "old")
	w.look(restarted)
	w.runs("new", "new 1")
	w.end(3)
	w.look(restarted)
	w.runs("", "new 1") // it pauses
	restarted.ended["new"] = ended{restarted.ended["new"].run, time.Now().Add(-firstPause)}
	w.look(restarted)
	w.runs("new", "new 1", "new 2")
	w.end(1)
	w.look(restarted)
	restarted.ended["new"] = ended{restarted.ended["new"].run, time.Now().Add(-firstPause)}
	w.look(restarted)
	w.runs("", "new 1", "new 2") // the second pause is longer
	restarted.ended["new"] = ended{restarted.ended["new"].run, time.Now().Add(-pauseGrowth * firstPause)}
	w.look(restarted)
	w.end(0)
	w.look(restarted)
	w.look(w.follower("new", "old"))
	w.runs("", "new 1", "new 2", "new 3")

	w.SwitchTo(t, "u2", "v1")
	w.look(f)
	w.runs("old", "new 1", "new 2", "new 3", "old 1")
	w.waits(f, "new", "a switch of "+dt.Name+" to v2")
}

// TestSwitchThatNobodySaw: switches while no controller ran are followed when one does.
func TestSwitchThatNobodySaw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SwitchTo(t, "u1", "v2")
	w.SwitchTo(t, "u2", "v1")
	w.look(w.follower("new", "old"))
	w.runs("old", "old 1")
}

// TestRollbackEndsThePass: keys of a version that no longer serves would find nothing.
func TestRollbackEndsThePass(t *testing.T) {
	t.Parallel()
	for name, tasks := range map[string][]string{"both ways": {"new", "old"}, "one way": {"new"}} {
		w := newWorld(t)
		f := w.follower(tasks...)
		w.SwitchTo(t, "u1", "v2")
		w.look(f)
		w.SwitchTo(t, "u2", "v1")
		d := w.look(f)
		outcome := ""
		for _, e := range d.History {
			if task, _ := e.Updated(); task == "new" {
				outcome = e.Outcome
			}
		}
		if want := "cancelled: " + dt.Name + " serves v1 again; 0 seen, 0 changed"; outcome != want {
			t.Errorf("%s: it ended as %q, want %q", name, outcome, want)
		}
		if len(tasks) == 1 {
			w.runs("", "new 1")
			continue
		}
		w.runs("old", "new 1", "old 1")
		// And forward again, before that one has ended.
		w.SwitchTo(t, "u3", "v2")
		w.look(f)
		w.look(f)
		w.runs("new", "new 1", "old 1", "new 1")
	}
}

// TestTwoSwitchesBetweenLooks: a pass that ran while the other deployment went back and came again
// may have met records before clients wrote the other keys. It goes on, and another one follows.
func TestTwoSwitchesBetweenLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.SwitchTo(t, "u1", "v2")
	w.look(f)
	w.SwitchTo(t, "u2", "v1")
	w.SwitchTo(t, "u3", "v2")
	w.look(f)
	w.runs("new", "new 1")
	w.waits(f, "new", "the end of data update new")
	w.end(0)
	w.look(f)
	w.runs("new", "new 1", "new 1")
	if m, _ := upgradestate.FollowingOf(w.get(), "new"); m.Switch != "u3" {
		t.Errorf("it follows %+v", m)
	}
}

// serve has the other deployment's latest switch be this one.
func (w *world) serve(id, from, to string) {
	w.t.Helper()
	d, err := w.Store.Get(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	d.CurrentVersion, d.LastSwitch = to, &upgradestate.Switch{ID: id, From: from, To: to}
	d.Namespaces = []upgradestate.Namespace{{Version: from}, {Version: to}}
	text, err := json.Marshal(d)
	if err != nil {
		w.t.Fatal(err)
	}
	dt.Put(w.t, w.Coord, dt.Key("record"), string(text))
}

// TestMoveIsNoSwitch: a move of the other deployment within one version changes no keys, so a pass
// would only take away keys that an operator wants to hold. A switch before it is followed all the same.
func TestMoveIsNoSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.serve("m1", "v1", "v1@b")
	w.look(f)
	w.runs("")
	w.waits(f, "old", "a switch of "+dt.Name+" to v1")

	w.serve("u1", "v1@b", "v2")
	w.look(f)
	w.serve("m2", "v2", "v2@b")
	w.look(f)
	w.end(0)
	w.look(f)
	w.runs("", "new 1")
	w.waits(f, "new", "")

	// The switch back and the move after it happen between two looks.
	w.serve("m3", "v1@b", "v1")
	w.look(f)
	w.runs("old", "new 1", "old 1")
	w.end(0)
	w.serve("m4", "v1", "v1@b")
	w.look(f)
	w.runs("", "new 1", "old 1")

	// A pass that found something is repeated after a move, too.
	w.serve("u5", "v1", "v2")
	w.look(f)
	w.end(3)
	w.serve("m6", "v2", "v2@b")
	w.look(f)
	w.runs("new", "new 1", "old 1", "new 1", "new 1")
}

// TestThirdVersion: the other deployment goes on to a version that imports do not name. Its keys may be
// the same, so nothing ends, and the row names the correction.
func TestThirdVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.serve("u1", "v1", "v2")
	w.look(f)
	w.serve("u2", "v2", "v3")
	w.look(f)
	w.runs("new", "new 1")
	want := "versions in imports that name v3, which " + dt.Name + " serves now: [v1, v3], if it has the keys of v2"
	w.waits(f, "new", want)
	w.waits(f, "old", want)

	// With that correction the pass for v2 is one of a former configuration.
	f.Import = nil
	parts := f.Parts
	parts.Import = func(string) (preflight.Import, bool) {
		return preflight.Import{Service: "places", Deployment: dt.Name, Older: "v1", Newer: "v3"}, true
	}
	w.look(New(parts))
	w.runs("new", "new 1", "new 1")
	if m, _ := upgradestate.FollowingOf(w.get(), "new"); m.Version != "v3" || m.Switch != "u2" {
		t.Errorf("it follows %+v", m)
	}
}

// TestRecoveredWithoutID: a switch that a recovery recorded without an ID is followed once.
func TestRecoveredWithoutID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.serve("", "v1", "v2")
	w.look(f)
	w.end(0)
	w.look(f)
	w.runs("", "new 1")
}

// before has something happen right before the first commit of the deployment of books.
func (w *world) before(do func() memcoord.Fault) {
	var done atomic.Bool // do makes such commits itself
	key := "/" + w.books.Name() + "/"
	w.Coord.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
		if len(ops) > 0 && strings.Contains(ops[0].Key, key) && done.CompareAndSwap(false, true) {
			return do()
		}
		return memcoord.Deliver
	})
}

// TestRace: two controllers decide to begin one pass, and one begins it.
func TestRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, other := w.follower("new"), w.follower("new")
	w.SwitchTo(t, "u1", "v2")
	d := w.get()
	w.before(func() memcoord.Fault {
		if err := other.step(t.Context(), d); err != nil {
			t.Error(err)
		}
		w.runs("new", "new 1")
		w.end(0) // it may even be over
		return memcoord.Deliver
	})
	if err := one.step(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.runs("", "new 1")
}

// TestDecisionIsOutdated: the other deployment goes back between the look and the begin.
func TestDecisionIsOutdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new", "old")
	w.SwitchTo(t, "u1", "v2")
	w.before(func() memcoord.Fault {
		w.SwitchTo(t, "u2", "v1")
		return memcoord.Deliver
	})
	w.look(f)
	w.runs("")
	w.look(f)
	w.runs("old", "old 1")

	// The same for the end of a pass, which has become right again.
	w.SwitchTo(t, "u3", "v2")
	w.before(func() memcoord.Fault {
		w.SwitchTo(t, "u4", "v1")
		return memcoord.Deliver
	})
	w.look(f)
	w.runs("old", "old 1")
}

// TestLostAnswers: the outcome of the begin is unknown, and the pass begins once.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, fault := range []memcoord.Fault{memcoord.LoseAnswer, memcoord.LoseRequest} {
		w := newWorld(t)
		f := w.follower("new")
		w.SwitchTo(t, "u1", "v2")
		w.before(func() memcoord.Fault { return fault })
		w.look(f)
		w.look(f)
		w.runs("new", "new 1")
	}
}

// TestUnreadable: nothing begins or ends by a record that is not there or that cannot be read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new")
	w.SwitchTo(t, "u1", "v2")
	w.look(f)
	kv, err := w.Coord.Get(t.Context(), dt.Key("record"))
	if err != nil {
		t.Fatal(err)
	}
	dt.Put(t, w.Coord, kv.Key, "{")
	if err := f.step(t.Context(), w.get()); !errors.Is(err, deployment.ErrCorrupt) {
		t.Errorf("an unreadable record: %v", err)
	}
	w.runs("new", "new 1")
	if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: kv.Key, Delete: true}}); err != nil {
		t.Fatal(err)
	}
	w.look(f)
	w.runs("new", "new 1")
	w.waits(f, "new", dt.Name+": deployment does not exist in this etcd: correct imports")
}

// TestWaits: a pass waits for another data update, for parts that the task lacks, and for the version of
// its records.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower("new")
	w.SwitchTo(t, "u1", "v2")
	w.do(upgradestate.BeginUpdate{Update: upgradestate.Update{ID: "d1", Name: "fill", Version: "v1", Kind: "books", Hash: "h"}})
	w.look(f)
	w.runs("fill", "fill ")
	w.waits(f, "new", "the end of data update fill")
	w.end(0)
	w.refuse = errors.New("databases to look keys up in")
	w.look(f)
	w.runs("", "fill ")
	w.waits(f, "new", "databases to look keys up in")
	w.refuse = nil
	d := w.get()
	d.CurrentVersion = "v2"
	if err := f.step(t.Context(), d); err != nil || len(f.Shown()) > 0 {
		t.Errorf("within another version: %v, shown %v", err, f.Shown())
	}
	w.look(f)
	w.runs("new", "fill ", "new 1")
}

// TestRun: it follows while it runs, and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.follower().Run(t.Context()); err != nil {
		t.Errorf("without a task: %v", err)
	}
	w.SwitchTo(t, "u1", "v2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.follower("new").Run(ctx) }()
	for d := range w.books.Watch(t.Context()) {
		if d.Update != nil {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	w.runs("new", "new 1")
}
