package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestRestoredUnderAnApplication restores the served version's database inside a switch, to before
// its fence. An application that knows nothing of a switch writes at once, and nothing refuses it.
// What it was told counts, in both versions; what the restore has undone does not.
func TestRestoredUnderAnApplication(t *testing.T) {
	for i, c := range cases([]struct {
		class record.FenceClass
		at    moment
		verb  string
	}{
		{record.FenceView, moment{"at HOLD", 0}, "restored --follow"},
		{record.FenceView, moment{"fenced v1", 0}, "restored --follow"},
		{record.FenceView, moment{"at DRAIN", 0}, "restored --follow"},
		{record.FenceView, moment{"at SEAL_TARGET", 0}, "restored --follow"},
		{record.FenceView, moment{"at SEAL_SOURCE", 0}, "restored --follow"},
		{record.FenceValidator, moment{"fenced v1", 0}, "restored --follow"},
		{record.FenceValidator, moment{"at DRAIN", 0}, "restored --follow"},
		{record.FenceValidator, moment{"at SEAL_TARGET", 0}, "restored --follow"},
		{record.FenceValidator, moment{"at SEAL_SOURCE", 0}, "restored --follow"},
	}) {
		t.Run(fmt.Sprintf("%s/%s", c.class, c.at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { restoredUnderAnApplication(t, c.class, uint64(i), c.at, c.verb) })
		})
	}
}

func restoredUnderAnApplication(t *testing.T, class record.FenceClass, seed uint64, m moment, verb string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newForeignSystem(ctx, t, class, []any{"same", "undone", "changed", "deleted"})
	f.quiet()
	nothing := func(context.Context) {}
	r := &restorable{t: t, system: f.system, seed: seed, halt: func() {}, resume: nothing}
	old := f.stores["v1"].Foreign()
	want := map[string]int64{"same": 0, "undone": 0, "changed": 0, "deleted": 0}
	write := func(id string, n int64) {
		var err error
		if n < 0 {
			err = old.Delete(ctx, docs, idOf(id))
		} else {
			err = old.Put(ctx, docs, oldDoc(id, n))
		}
		switch {
		case err == nil && n < 0:
			delete(want, id)
		case err == nil:
			want[id] = n
		case !errors.Is(err, memstore.ErrRejected):
			t.Errorf("write: %v", err)
		}
	}
	var backup *memstore.Backup
	struck := make(chan struct{})
	r.tp = &trap{moment: m, spring: func(*process) {
		f.stores["v1"].Cluster().Restore(backup, func() {})
		want["undone"] = 0
		delete(want, "new")
		write("changed", 2)
		write("deleted", -1)
		write("rude", 3)
		close(struck)
	}}
	r.controllers = r.started(ctx, "controller", 2, r.tp)
	r.beginHeld(ctx)
	r.await(ctx, "ready", ready)
	backup = f.stores["v1"].Cluster().Backup(func() {})
	write("undone", 1)
	write("new", 1)
	pass(2 * time.Second)
	r.goesOn(ctx, "v2", verb)
	soon(t, struck)
	pass(3 * time.Second)
	if len(r.verbs) != 1 {
		t.Errorf("decided was %v", r.verbs)
	}
	if want["rude"] != 3 {
		t.Error("the application was refused in a database that is not fenced")
	}
	found, err := f.stores["v2"].Foreign().Documents(ctx, docs)
	f.check(err)
	has := map[string]int64{}
	for _, d := range found {
		has[d.Lookup("_id").StringValue()] = d.Lookup("n").AsInt64()
	}
	if fmt.Sprint(has) != fmt.Sprint(want) {
		t.Errorf("v2 holds %v, acknowledged is %v", has, want)
	}
	cancel()
	for _, p := range r.controllers {
		p.kill()
	}
}

// TestRestoredAlone restores the served version's database under traffic after a switch that kept no way
// back, so that no other version follows it: with controllers, and between two runs of them. Nobody has
// to decide anything: servers go on with the restored state.
func TestRestoredAlone(t *testing.T) {
	raced.Leave(t)
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
