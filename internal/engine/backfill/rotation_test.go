package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// rotation stands for keys: records are under the new one once they have a region.
type rotation struct {
	w *world

	mu      sync.Mutex
	waits   string
	planned []bool             // what Begin was told
	task    transform.TaskFunc // nil: fill
}

func (r *rotation) Begin(_ context.Context, u upgradestate.Update, planned bool) (transform.Task, backfill.Namespace, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned = append(r.planned, planned)
	if !planned && r.waits != "" {
		return transform.Task{}, nil, r.waits, nil
	}
	task := r.task
	if task == nil {
		task = fill
	}
	return transform.Task{Name: u.Name, Version: u.Version, Kind: u.Kind, Func: task}, r.w.ns, "", nil
}

func (r *rotation) let() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = ""
}

// TestRotationWaits: no plan is made, and no record read, before nobody writes under the former
// key any more; a controller that comes later goes on by the plan that there is.
func TestRotationWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		u := upgradestate.Update{ID: "k1", Name: upgradestate.RotateKeys, Version: "v1", Kind: "items", Key: "a002", Hash: "h"}
		w.apply(upgradestate.BeginUpdate{Update: u})
		owner := w.owner(0, 1, 2, 3)
		none := w.engine(owner, taskOf(fill), nil)
		w.eventually("a controller without keys says so", func() bool { return strings.Contains(none.engine.Progress().Waits, "has no keys") })
		none.stop(t)

		r := &rotation{w: w, waits: "writes under another key"}
		e := w.engine(owner, taskOf(fill), func(p *backfill.Parts) { p.Rotation = r })
		w.eventually("it waits", func() bool { return e.engine.Progress().Waits == r.waits })
		if _, found, err := w.store.LoadUpdatePlan(t.Context(), "k1"); found || err != nil {
			t.Errorf("there is a plan already, %v", err)
		}
		if it := w.items()[key(0)]; it.Region != "" {
			t.Error("records are migrated already")
		}
		r.let()
		wantOutcome(t, w.outcome("k1"), "done; 30 seen, 30 changed")
		e.stop(t)
		w.wantFilled(30)

		u.ID = "k2"
		w.apply(upgradestate.BeginUpdate{Update: u})
		if _, err := w.store.CreateUpdatePlan(t.Context(), w.record(), backfill.Plan{Total: 30}); err != nil {
			t.Fatal(err)
		}
		later := &rotation{w: w, waits: "writes under another key"}
		e = w.engine(owner, taskOf(fill), func(p *backfill.Parts) { p.Rotation = later })
		wantOutcome(t, w.outcome("k2"), "done; ")
		e.stop(t)
	})
}

// TestRotationGoesOnAfterErrors: where the database cannot say which key records are under, no
// record is given up, since nobody would begin again; one that cannot be decrypted is.
func TestRotationGoesOnAfterErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		var mu sync.Mutex
		failures := []error{record.ErrUnavailable, context.DeadlineExceeded, context.Canceled}
		r := &rotation{w: w, task: func(rec record.Record) (bson.Raw, error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case rec.Key == record.StringKey(key(7)):
				return nil, errors.New("it was changed")
			case rec.Key == record.StringKey(key(3)) && len(failures) > 0:
				err := failures[0]
				failures = failures[1:]
				return nil, fmt.Errorf("read the keys of the records: %w", err)
			}
			return fill(rec)
		}}
		w.apply(upgradestate.BeginUpdate{Update: upgradestate.Update{ID: "k1", Name: upgradestate.RotateKeys, Version: "v1", Kind: "items", Key: "a002", Hash: "h"}})
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), func(p *backfill.Parts) { p.Rotation = r })
		wantOutcome(t, w.outcome("k1"), "not done: 1 records failed, such as "+record.StringKey(key(7)).String()+": it was changed; 30 seen, 29 changed")
		e.stop(t)
	})
}
