package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
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
