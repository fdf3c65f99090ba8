package identity_test

import (
	"context"
	"sync"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestAbortRightAfterASwitch: a rollback begins, and is aborted, before any controller has looked at
// the record at rest since the switch. The mark still has that switch, which is over.
func TestAbortRightAfterASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	noted := map[string]bool{}
	w.apply(upgradestate.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"})
	for w.d.CurrentVersion == "v1" {
		w.step(noted)
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
	w.apply(upgradestate.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h"})
	for w.d.Upgrade.Step != upgradestate.StepHold {
		w.step(noted)
	}
	w.apply(upgradestate.Abort{ID: "u2", Reason: "a test"})
	for w.d.Upgrade != nil {
		w.step(noted)
	}
	w.ok(w.check())
}

// pausing is a database whose first write of a mark comes after others have worked.
type pausing struct {
	record.Marker
	once sync.Once
	work func()
}

func (p *pausing) PutMark(ctx context.Context, m record.Mark) error {
	p.once.Do(p.work)
	return p.Marker.PutMark(ctx, m)
}

// TestLateFlipAfterAnotherUpgrade: a process pauses while it announces a flip. Its upgrade and the
// next one are aborted meanwhile, and the mark names only the next one.
func TestLateFlipAfterAnotherUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	noted := map[string]bool{}
	upTo := func(id string, step upgradestate.Step) {
		w.apply(upgradestate.Begin{ID: id, TargetVersion: "v2", TransformHash: "h"})
		for w.d.Upgrade.Step != step {
			w.step(noted)
		}
	}
	abort := func(id string) {
		w.apply(upgradestate.Abort{ID: id, Reason: "a test"})
		for w.d.Upgrade != nil {
			w.step(noted)
		}
	}
	// An earlier upgrade's abort must not prevent a flip.
	upTo("u0", upgradestate.StepHold)
	abort("u0")
	upTo("u1", upgradestate.StepSealSource)
	w.ok(w.keeper().BeforeFlip(t.Context(), w.d))
	abort("u1")

	upTo("u2", upgradestate.StepSealSource)
	late := w.keeper()
	late.Databases["v1"] = &pausing{Marker: w.db["v1"], work: func() {
		abort("u2")
		upTo("u3", upgradestate.StepHold) // announces no name, so nothing else tells the two apart
		abort("u3")
	}}
	if err := late.BeforeFlip(t.Context(), w.d); err == nil {
		t.Error("a flip was announced after its abort")
	}
	w.ok(w.keeper().Keep(t.Context(), w.d))
	w.ok(w.check())
}
