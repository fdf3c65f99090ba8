package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// restoredCell is a restore in a phase of the way from v1 to v2.
type restoredCell struct {
	version string // whose database is restored
	at      moment // in which it happens; "tail": held at ready
	passes  bool   // and the controller that is there goes on
	verb    string // by which an operator decides; empty: none is needed
}

func (c restoredCell) String() string {
	return fmt.Sprintf("%s, %s, passes %t, %s", c.version, c.at, c.passes, c.verb)
}

// restoredCells are the phases before the flip.
var restoredCells = []restoredCell{
	{"v1", moment{"load", 2}, false, "restored --follow"},
	{"v1", moment{"tail", 0}, false, "restored --follow"},
	{"v1", moment{"tail", 0}, false, "restored --keep"},
	{"v1", moment{"at HOLD", 0}, false, "restored --follow"},
	{"v1", moment{"fence v1", 0}, false, "restored --follow"},
	{"v1", moment{"fenced v1", 0}, false, "restored --follow"},
	{"v1", moment{"at DRAIN", 0}, false, "recover --current v1"},
	{"v1", moment{"at SEAL_TARGET", 0}, false, "recover --current v1"},
	{"v1", moment{"at SEAL_SOURCE", 0}, false, "recover --current v1"},
	{"v1", moment{"flip", 0}, true, ""}, // it has everything that v1 had
	{"v2", moment{"load", 2}, false, ""},
	{"v2", moment{"tail", 0}, false, ""},
	{"v2", moment{"at HOLD", 0}, false, ""},
	{"v2", moment{"fenced v1", 0}, false, ""},
	{"v2", moment{"at DRAIN", 0}, false, ""},
	{"v2", moment{"at SEAL_TARGET", 0}, false, ""},
	{"v2", moment{"at SEAL_SOURCE", 0}, false, ""},
	{"v2", moment{"flip", 0}, true, "recover --current v1"}, // nothing was acknowledged by v2
	// The commit of the flip is lost: the driver looks at the databases before the next one.
	{"v2", moment{"flip", 0}, false, ""},
}

// allEngines are the pairs of engines.
var allEngines = []engines{"", "v1", "v2"}

// TestRestoredOnTheWay restores the database of each version in each phase of an upgrade, under
// traffic. At ready it does so in either engine, and elsewhere with one pair of engines in turn.
// Nothing is lost that was acknowledged, unless the restore of the served version itself has undone
// it. The upgrade goes on, by itself or by the one verb that the deployment names.
func TestRestoredOnTheWay(t *testing.T) {
	for i, c := range cases(restoredCells) {
		in := []engines{"", engines(c.version)}
		if c.at.what != "tail" { // what differs is what others do meanwhile, and the names
			in = allEngines[i%len(allEngines):][:1]
		}
		for _, e := range turns(i, in...) {
			t.Run(fmt.Sprintf("%s/%s", e, c), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { restoredOnTheWay(t, e, uint64(i), c) })
			})
		}
	}
}

func restoredOnTheWay(t *testing.T, e engines, seed uint64, c restoredCell) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := e.found(ctx, t, seed)
	r.serves(ctx)
	pass(time.Second)
	struck := make(chan struct{})
	var at state
	strikes := func(*process) {
		r.restore(at, c.version == "v1" && c.verb != "")
		close(struck)
	}
	r.tp = &trap{moment: c.at, spring: strikes, passes: c.passes}
	copying := c.at.what == "load"
	r.manual = true
	if copying {
		r.maxRate = 60
	}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	if !copying {
		r.beginHeld(ctx)
		r.await(ctx, "ready", ready)
	}
	at = r.backup(c.version)
	r.livesOn(ctx, c.version)
	if copying {
		r.beginHeld(ctx)
		soon(t, struck)
	}
	switch {
	case c.verb == "restored --keep":
		r.quietly(ctx, "v2", at)
	case c.at.what == "tail":
		strikes(nil)
	}
	r.goesOn(ctx, "v2", c.verb)
	if r.kept == nil {
		soon(t, struck)
	}
	r.ends(ctx, "v2", c.verb)
	cancel()
	r.end()
}

// TestRestoredAfterTheSwitch is TestRestoredOnTheWay after the switch to v2: before the rollback, and
// in each step of its switch. A backup of the night is from before the switch.
func TestRestoredAfterTheSwitch(t *testing.T) {
	before := moment{} // the rollback begins afterwards
	for i, c := range cases([]restoredLater{
		{"v1", false, before, ""},
		{"v1", true, before, ""},
		{"v2", false, before, "restored --follow"},
		{"v2", false, before, "restored --keep"},
		{"v2", true, before, "recover --current v2"},
		{"v2", true, before, "recover --current v1"},
		{"v1", false, moment{"at HOLD", 0}, ""},
		{"v1", false, moment{"fenced v2", 0}, ""},
		{"v1", false, moment{"at DRAIN", 0}, ""},
		{"v1", false, moment{"at SEAL_TARGET", 0}, ""},
		{"v1", false, moment{"at SEAL_SOURCE", 0}, ""},
		{"v1", false, moment{"flip v1", 0}, ""}, // the commit of the flip is lost
		{"v2", false, moment{"at HOLD", 0}, "restored --follow"},
		{"v2", false, moment{"fenced v2", 0}, "restored --follow"},
		{"v2", false, moment{"at DRAIN", 0}, "recover --current v2"},
		{"v2", false, moment{"at SEAL_TARGET", 0}, "recover --current v2"},
		{"v2", false, moment{"at SEAL_SOURCE", 0}, "recover --current v2"},
	}) {
		in := []engines{"", engines(c.version)}
		if c.at != before { // as in TestRestoredOnTheWay
			in = allEngines[i%len(allEngines):][:1]
		}
		for _, e := range turns(i, in...) {
			t.Run(fmt.Sprintf("%s/%s", e, c), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { restoredAfterTheSwitch(t, e, uint64(i), c) })
			})
		}
	}
}

// restoredLater is a restore after the switch to v2.
type restoredLater struct {
	version string // whose database is restored
	night   bool   // from a backup of before the switch
	at      moment // of the rollback in which it happens; the zero moment: before it
	verb    string // by which an operator decides; empty: none is needed
}

func (c restoredLater) String() string {
	at := "before the rollback"
	if c.at.what != "" {
		at = c.at.String()
	}
	return fmt.Sprintf("%s, night %t, %s, %s", c.version, c.night, at, c.verb)
}

func restoredAfterTheSwitch(t *testing.T, e engines, seed uint64, c restoredLater) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := e.found(ctx, t, seed)
	r.serves(ctx)
	pass(time.Second)
	r.tp = &trap{}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	r.beginHeld(ctx)
	r.await(ctx, "ready", ready)
	var at state
	if c.night {
		r.stop()
		r.follows(ctx, "v2")
		at = r.backup(c.version)
		r.drives(ctx)
	}
	r.goesOn(ctx, "v2", "")
	pass(2 * time.Second)
	if !c.night {
		at = r.backup(c.version)
	}
	r.livesOn(ctx, c.version)
	struck := make(chan struct{})
	switch {
	case c.at.what != "":
		r.tp.arm(c.at, func(*process) {
			r.restore(at, c.version == "v2")
			close(struck)
		})
	case c.verb == "restored --keep" || c.verb == "recover --current v1":
		r.quietly(ctx, "v1", at)
	default:
		r.restore(at, c.version == "v2")
	}
	r.goesOn(ctx, "v1", c.verb)
	if c.at.what != "" {
		soon(t, struck)
	}
	r.ends(ctx, "v1", c.verb)
	cancel()
	r.end()
}
