package syncer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/verify"
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
				// Changes are applied while the beat is counted.
				if n := writes.Add(1); n < 20 {
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

// counted is a crooked target that counts what is applied to it.
type counted struct {
	crooked
	applied atomic.Int64
}

func (c *counted) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	c.applied.Add(1)
	return c.crooked.Apply(ctx, b)
}

// TestRestoredSourceRepairsNothing: a group that differs from a source that was restored is not
// written over the target, which may have the only copy of what the restore has undone.
func TestRestoredSourceRepairsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := keyIn(1, 0)
		target := &counted{crooked: crooked{key: record.StringKey(key)}}
		target.off.Store(true)
		var restored atomic.Bool
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			target.Namespace, p.Target = p.Target, target
			p.Comparer = verify.New(p.Source, p.Target, p.Direction)
			p.Lives = func(context.Context) error {
				if restored.Load() {
					return errors.New("it was restored from a backup")
				}
				return nil
			}
		})
		w.eventually("in sync", e.synced)
		restored.Store(true)
		target.off.Store(false)
		target.applied.Store(0)
		w.put("a1", key, 1)
		w.eventually("the change is applied", func() bool { return target.applied.Load() > 0 })
		<-time.After(time.Minute)
		if n := target.applied.Load(); n != 1 {
			t.Errorf("the source was restored, and the group that differs was applied %d times more", n-1)
		}
		target.off.Store(true)
		restored.Store(false)
		w.eventually("the group is repaired", func() bool { return target.applied.Load() > 1 })
		e.stop(t)
	})
}
