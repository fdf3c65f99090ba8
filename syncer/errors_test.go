package syncer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// flaky is Deployments whose first reads fail.
type flaky struct {
	syncer.Deployments
	left atomic.Int64
}

func (f *flaky) Get(ctx context.Context) (upgradestate.Deployment, error) {
	if f.left.Add(-1) >= 0 {
		return upgradestate.Deployment{}, errors.New("etcd is not there yet")
	}
	return f.Deployments.Get(ctx)
}

func TestStartWaitsForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			f := &flaky{Deployments: p.Deployments}
			f.left.Store(5)
			p.Deployments = f
		})
		w.eventually("the copy", e.synced)
		e.stop(t)
	})
}

// A report is not kept up when nothing more is heard of the source.
func TestSilentStreamIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		down := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Next, faultstore.Watch))
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, down) })
		w.begin()
		w.eventually("ready", w.allReady)
		down.On()
		w.eventually("withdrawal", func() bool { return len(w.ready()) == 0 })
		if p, _ := e.progress(0); p.LastError == "" || p.State == "ready" {
			t.Errorf("progress shows %q, error %q", p.State, p.LastError)
		}
		down.Off()
		w.eventually("ready again", w.allReady)
		if p, _ := e.progress(0); p.LastError != "" {
			t.Errorf("progress shows %q although all is well", p.LastError)
		}
		e.stop(t)
	})
}

// Progress that hangs on no lease would be shown long after its owner is gone.
func TestProgressNeedsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lease, err := w.coord.Grant(t.Context(), 3*time.Second)
		w.check(err)
		var id atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Lease = func() coord.LeaseID { return coord.LeaseID(id.Load()) }
		})
		w.eventually("the copy", e.synced)
		<-time.After(5 * time.Second)
		published := func() int {
			ps, err := w.store.Progress(t.Context())
			w.check(err)
			return len(ps)
		}
		if n := published(); n > 0 {
			t.Errorf("%d shards were published without a lease", n)
		}
		id.Store(int64(lease.ID()))
		w.eventually("progress", func() bool { return published() == ring })
		w.check(lease.Close(t.Context()))
		w.put("a1", keyIn(0, 0), 1)
		<-time.After(5 * time.Second)
		if p, _ := e.progress(0); p.LastError != "" {
			t.Errorf("a lease that ended is an error: %s", p.LastError)
		}
		e.stop(t)
	})
}
