package syncer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// beaten is a journal that compares what is stored with where the source was at the latest beat.
type beaten struct {
	syncer.Journal
	t  *testing.T
	mu sync.Mutex
	at record.Position // of the source, when the latest beat began
	n  int             // checkpoints that were stored
}

func (b *beaten) SaveCheckpoints(ctx context.Context, dir syncer.DirectionKey, all map[int]syncer.Checkpoint, locks ...coord.Condition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, c := range all {
		if b.n++; c.Position.Compare(b.at) > 0 {
			b.t.Errorf("shard %d: a checkpoint at %v is stored after a beat at %v", n, c.Position, b.at)
		}
	}
	return b.Journal.SaveCheckpoints(ctx, dir, all, locks...)
}

// TestBeatFollowsACheckpoint: no checkpoint says of a database what was done after the latest beat.
// A backup from before that beat is told by it, and every later one has all that the checkpoint says.
func TestBeatFollowsACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		journal := &beaten{Journal: w.store, t: t}
		var writes atomic.Int64
		var applying sync.Mutex
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Journal = journal
			p.Lives = func(ctx context.Context) error {
				at, err := w.src.Position(ctx)
				if err != nil {
					return err
				}
				journal.mu.Lock()
				journal.at = at
				journal.mu.Unlock()
				// Changes are applied while the beat is counted. One call at a time can wait for them.
				if n := writes.Add(1); n < 20 && applying.TryLock() {
					defer applying.Unlock()
					w.put("a1", "key", int(n))
					synctest.Wait()
				}
				return nil
			}
		})
		w.eventually("ready", func() bool { return r.synced() && writes.Load() > 5 })
		r.stop(t)
		if journal.n == 0 {
			t.Error("no checkpoint was stored")
		}
	})
}
