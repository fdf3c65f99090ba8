package offline

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestOfflineTakesOver: the database of the served version dies while an upgrade from it runs, in any
// step. No controller can end or abort that, and the rollback without a controller does.
func TestOfflineTakesOver(t *testing.T) {
	t.Parallel()
	steps := []upgradestate.Step{
		upgradestate.StepNone, upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain,
		upgradestate.StepSealTarget, upgradestate.StepSealSource, upgradestate.StepAbort,
	}
	for _, to := range []string{"v1", "v3"} {
		for _, step := range steps {
			name := to + " " + string(step)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := deploymenttest.New(t).WithVersions(t)
				confirmAll(t, w, w.Flip(t))
				w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
					Version: "v3", Location: "mongo:dbc_v3", Identity: upgradestate.Identity{Cluster: "replicaSet/c3", Database: "d3"},
					Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages.n1", ID: "e1", Fence: "view"}},
				}})
				w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: "h2", Precopied: true}})
				d := w.Apply(t, upgradestate.Begin{ID: "running", TargetVersion: to, TransformHash: "h2"})
				for range 20 { // more than any step takes
					if d.Upgrade.Step != step {
						d = advance(t, w, d)
					}
				}
				if d.Upgrade.Step != step {
					t.Fatalf("it stays in step %q: %+v, %s", d.Upgrade.Step, upgradestate.Actions(d), upgradestate.SwitchBlocker(d))
				}
				o := &Rollback{store: w.Store, Say: io.Discard}
				if done, err := o.fits(d); done || err != nil {
					t.Fatalf("it is refused: %v", err)
				}
				lost := lostFencer{}
				// The database of the third version is away too, and may come back.
				fencers := map[string]record.Fencer{"v1": lost, "v2": lost, "v3": awayFencer{err: errors.New("away")}}
				if err := o.driveOver(t.Context(), fencers, identity.Keeper{Deployments: w.Store}, zap.NewNop()); err != nil {
					t.Fatal(err)
				}
				d, err := w.Store.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, places := upgradestate.WritePlaces(d); d.CurrentVersion != "v1" || d.Upgrade != nil || !d.LastSwitch.Snapshot || len(places) == 0 {
					t.Errorf("at %s, upgrade %+v, latest switch %+v, places %v", d.CurrentVersion, d.Upgrade, d.LastSwitch, places)
				}
				// The announced renames of the third version are still to be made.
				if ns, _ := d.Namespace("v3"); to == "v3" && step == upgradestate.StepSealTarget && ns.Kinds[0].Pending == nil {
					t.Error("an operation in a database that is away was confirmed")
				}
				// A repetition has nothing to do.
				if done, err := (&Rollback{store: w.Store, Say: io.Discard}).fits(d); !done || err != nil {
					t.Errorf("a repetition: done %t, %v", done, err)
				}
			})
		}
	}
}

// TestOfflineTakesOverTheShown: an upgrade, or a switch, that came after the operator was shown the
// effects is not undone.
func TestOfflineTakesOverTheShown(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	confirmAll(t, w, w.Flip(t))
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2", Precopied: true}})
	began := func() *Rollback {
		d, err := w.Store.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o := &Rollback{store: w.Store, Say: io.Discard}
		if done, err := o.fits(d); done || err != nil {
			t.Fatalf("it is refused: %v", err)
		}
		return o
	}
	refuses := func(o *Rollback, want string) {
		t.Helper()
		lost := lostFencer{}
		err := o.driveOver(t.Context(), map[string]record.Fencer{"v1": lost, "v2": lost}, identity.Keeper{Deployments: w.Store}, zap.NewNop())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want %q", err, want)
		}
	}
	o := began()
	w.Apply(t, upgradestate.Begin{ID: "later", TargetVersion: "v1", TransformHash: "h2"})
	refuses(o, "upgrade later to v1 began meanwhile")
	d, err := w.Store.Get(t.Context())
	if err != nil || d.Upgrade == nil || d.Upgrade.ID != "later" || d.Upgrade.Step != upgradestate.StepNone {
		t.Fatalf("it was touched: %+v, %v", d.Upgrade, err)
	}
	// The upgrade ends, and another one takes its place.
	o = began()
	w.Apply(t, upgradestate.Abort{ID: "later"})
	w.Apply(t, upgradestate.Begin{ID: "last", TargetVersion: "v1", TransformHash: "h2"})
	refuses(o, "upgrade last to v1 began meanwhile")
	// The shown record was one switch earlier.
	o = began()
	o.shown.Epoch--
	refuses(o, "another switch was made meanwhile")
}

// confirmAll confirms all announced operations.
func confirmAll(t *testing.T, w deploymenttest.World, d upgradestate.Deployment) upgradestate.Deployment {
	t.Helper()
	for _, a := range upgradestate.Actions(d) {
		switch a := a.(type) {
		case upgradestate.Execute:
			d = w.Apply(t, upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
		case upgradestate.Unfence:
			d = w.Apply(t, upgradestate.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From})
		}
	}
	return d
}

// advance takes a running upgrade to its next step, and from the last one to its abort.
func advance(t *testing.T, w deploymenttest.World, d upgradestate.Deployment) upgradestate.Deployment {
	t.Helper()
	before := d.Upgrade.Step
	if d = confirmAll(t, w, d); d.Upgrade.Step != before {
		return d
	}
	for _, a := range upgradestate.Actions(d) {
		switch a := a.(type) {
		case upgradestate.AwaitReports:
			return w.Apply(t, upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
		case upgradestate.StartSwitch:
			return w.Apply(t, a)
		case upgradestate.Hold:
			return w.Apply(t, upgradestate.Held{ID: a.ID})
		case upgradestate.Drained:
			return w.Apply(t, a)
		case upgradestate.Flip:
			return w.Apply(t, upgradestate.Abort{ID: a.ID, Reason: "deadline"})
		}
	}
	return d
}
