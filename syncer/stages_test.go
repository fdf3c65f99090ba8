package syncer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// timed is a database whose commands take their time.
type timed struct {
	record.Namespace
	scan, load, apply time.Duration
}

func (s timed) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	<-time.After(s.scan)
	return s.Namespace.Scan(ctx, req)
}

func (s timed) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	<-time.After(s.load)
	return s.Namespace.Load(ctx, b)
}

func (s timed) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	<-time.After(s.apply)
	return s.Namespace.Apply(ctx, b)
}

// TestStages: where the time of a copy goes. The clock is simulated, so that what takes no time
// of a database takes none.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 4 { // four pages at most, one for each shard
			w.put("a1", keyIn(i, 0), i)
		}
		there := mutation("a2", keyIn(0, 0), 0) // is applied in a transaction
		w.write(w.dst, "v2", there)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = timed{Namespace: p.Source, scan: 2 * time.Second}
			p.Target = timed{Namespace: p.Target, load: 3 * time.Second, apply: 5 * time.Second}
		})
		w.eventually("the copy", func() bool { return e.synced() })
		got := e.engine.Stages()
		// Pages of empty ranges are read as well, and written without a command.
		if got[syncer.Read] == 0 || got[syncer.Read]%(2*time.Second) != 0 || got[syncer.Write] == 0 || got[syncer.Write]%(3*time.Second) != 0 ||
			got[syncer.Again] != 5*time.Second || got[syncer.Transform] != 0 {
			t.Errorf("stages %v", got)
		}
		e.stop(t)
	})
}
