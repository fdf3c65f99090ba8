package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/upgradestate"
)

// TestRestoredAlone restores the served version's database under traffic after a switch that kept no way
// back, so that no other version follows it: with controllers, and between two runs of them. Nobody has
// to decide anything: servers go on with the restored state.
func TestRestoredAlone(t *testing.T) {
	for i, e := range []engines{"", "v2"} {
		for _, between := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/between two runs %t", e, between), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { restoredAlone(t, e, uint64(i), between) })
			})
		}
	}
}

func restoredAlone(t *testing.T, e engines, seed uint64, between bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := e.found(ctx, t, seed)
	r.oneWay = true
	r.serves(ctx)
	pass(time.Second)
	r.tp = &trap{}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	r.beginHeld(ctx)
	r.await(ctx, "ready", ready)
	r.goesOn(ctx, "v2", "")
	pass(2 * time.Second)
	at := r.backup("v2")
	r.livesOn(ctx, "v2")
	if between {
		for _, p := range r.controllers {
			p.kill()
		}
	}
	r.restore(at, true)
	if between {
		pass(time.Second)
		r.controllers = r.started(ctx, "again", 2, r.tp)
	}
	d := r.await(ctx, "the restore is noted", func(d upgradestate.Deployment) bool {
		return slices.ContainsFunc(d.History, func(e upgradestate.Entry) bool { return e.What == "restored" && e.From == "v2" })
	})
	if line := upgradestate.RestoredLine(d); line != "" {
		t.Errorf("it waits for %s", line)
	}
	pass(10 * time.Second) // a restore that had to be decided would be seen by now
	r.ends(ctx, "v2", "")
	cancel()
	r.end()
}

// TestRestoredBeforeTheCopy restores the served version's database while the next version is known and
// holds nothing yet. An operator decides, and the upgrade takes the restored state along, with all that
// was written since.
func TestRestoredBeforeTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := engines("").found(ctx, t, 1)
		r.manual = true // controllers copy when an upgrade begins
		r.serves(ctx)
		r.tp = &trap{}
		r.controllers = r.started(ctx, "controller", 2, r.tp)
		r.await(ctx, "the next version", func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
		r.livesOn(ctx, "v1")
		at := r.backup("v1")
		r.livesOn(ctx, "v1")
		r.restore(at, true)
		r.await(ctx, "the restore is seen", func(d upgradestate.Deployment) bool { return upgradestate.RestoredLine(d) != "" })
		r.goesOn(ctx, "v2", "restored --follow")
		r.ends(ctx, "v2", "restored --follow")
		cancel()
		r.end()
	})
}
