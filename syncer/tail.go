package syncer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// tail follows the source's changes for all owned shards with one stream from the earliest of their
// positions. It restarts when a shard with an earlier position is gained. The other shards skip
// changes that they have applied. Shards with a lost history resume at the present.
func (e *Engine) tail(ctx context.Context) error {
	for {
		if err := e.await(ctx, func() bool { return len(e.shards) > 0 }); err != nil {
			return err
		}
		err := e.persist(ctx, following, func() error { return e.follow(ctx) })
		var lost *historyLost
		if errors.As(err, &lost) {
			err = e.beginAgain(ctx, lost)
		}
		var replaced *record.ReplacedError
		if errors.As(err, &replaced) && e.Replaced != nil {
			err = e.awaitReplaced(ctx, replaced)
		}
		if err != nil {
			return err
		}
	}
}

// following names the stream's work in logs and progress.
const following = "follow changes"

// follow reads one stream until it fails, or returns nil when it must restart at an earlier
// position.
func (e *Engine) follow(ctx context.Context) (err error) {
	from, ok := e.earliest()
	if !ok {
		return nil
	}
	// A gained shard must not wait for the stream's next delivery, so its arrival cancels the read.
	listen, restart := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if e.await(listen, func() bool { return e.restart }) == nil {
			restart()
		}
	})
	// Deferred calls run in reverse: restart first ends the goroutine, then Wait returns.
	defer waiting.Wait()
	defer restart()
	stream, origins, err := e.sourceChanges(ctx, from)
	if err != nil {
		return lostAt(from, err)
	}
	defer func() {
		if err := closing.Bounded(ctx, stream.Close); err != nil {
			e.Log.Debug("close stream", zap.Error(err))
		}
	}()
	g, flying := errgroup.WithContext(ctx)
	defer func() {
		// A failed batch is the reason why the read ended. The others land before a new stream begins.
		err = cmp.Or(g.Wait(), err)
	}()
	defer context.AfterFunc(flying, restart)()
	air := newAir(g)
	for {
		b, err := stream.Next(listen)
		// The read was cancelled for a restart, or a batch has failed.
		if err != nil && listen.Err() != nil && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return lostAt(from, err)
		}
		e.recovered(following)
		if err := e.launch(flying, air, b, origins); err != nil {
			return err
		}
		if again := air.latest.wait(flying); again {
			return nil
		}
		air.clear(flying)
		from = b.Pos
		e.gather(listen, copyGathers, func() bool { return !e.copying() })
	}
}

// copyGathers is how long changes gather while a shard copies. No client waits for them then, and one
// larger transaction takes less from the copy than many small ones.
const copyGathers = 200 * time.Millisecond

// gather waits for further changes of a stream for a time, at most until over, which is called with
// e.mu held.
func (e *Engine) gather(ctx context.Context, most time.Duration, over func() bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = e.await(ctx, over) // a timeout is the normal end
}

// earliest returns the position where the stream must begin, and false without shards. It marks the
// present shards as followed: a shard adopted later has an earlier position, which this stream has
// passed.
func (e *Engine) earliest() (record.Position, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restart = false
	var from record.Position
	for _, s := range e.shards {
		s.followed = true
		if from.IsZero() || s.applied.at.Compare(from) < 0 {
			from = s.applied.at
		}
	}
	return from, len(e.shards) > 0
}

// follows reports whether a batch of the running stream concerns this shard. A leaving shard stands
// still: it applies nothing more and must not seem to. Engine.mu is held.
func (s *shard) follows(b record.ChangeBatch) bool {
	return s.followed && !s.leaving && b.Pos.Compare(s.applied.at) >= 0
}

// fences reports whether a marker is a fence in force or announced, of a fixed-name kind and of a
// class that may let deletes through. A view lets none of the application's through: a delete behind
// it came under the hidden name. It is a change like others, and after the flip the next engine's.
// The database sets a fence before it is confirmed. e.mu is held.
func (e *Engine) fences(kind, marker string) bool {
	source, _ := e.record.Namespace(e.Direction.From())
	k, _ := source.Kind(kind)
	if !k.Fixed || marker == "" || record.FenceClass(k.Fence) == record.FenceView {
		return false
	}
	// A switch back seals the kind under a new mark, and deletes pass until its flip.
	announced := k.Pending != nil && (k.Pending.Reason == upgradestate.PendingFence || k.Pending.Reason == upgradestate.PendingSeal)
	return marker == k.Fenced || announced && marker == k.Pending.To
}

// dirt is the work of a batch: groups of owned shards that have not seen it yet, without repetition
// and also by shard, and deletes behind a fence.
type dirt struct {
	ids         []transform.GroupID
	hits        map[*shard][]transform.GroupID
	lateDeletes []lateDelete
	ungrouped   []ungroupedKey
}

// dirtyGroups returns the work of a batch.
func (e *Engine) dirtyGroups(b record.ChangeBatch, origins bool) dirt {
	d := dirt{hits: map[*shard][]transform.GroupID{}}
	seen := map[transform.GroupID]bool{}
	markers := map[string]string{} // latest in this batch so far
	e.mu.Lock()
	defer e.mu.Unlock()
	copying := e.copying()
	if !copying {
		e.changed = changed{}
	}
	for _, c := range b.Changes {
		if c.Marker != "" {
			markers[c.Kind] = c.Marker
			continue
		}
		id, ok, err := e.Direction.GroupOf(c.Kind, c.Key)
		if err != nil {
			// After the flip a new key is no record of this direction, so it must not be parked.
			if !e.over() || c.Delete {
				d.ungrouped = append(d.ungrouped, ungroupedKey{c.Kind, c.Key, err})
			}
			continue
		}
		if !ok {
			continue
		}
		// Also for groups of other shards: this controller copies some of them.
		if copying {
			e.changed.add(id)
		}
		s := e.shards[e.shardOf(id)]
		if s == nil || !s.follows(b) {
			continue
		}
		late := c.Delete && (e.fences(c.Kind, markers[c.Kind]) || e.fences(c.Kind, s.applied.markers[c.Kind]))
		if late && !(origins && c.Origin == record.AppliedChange) {
			d.lateDeletes = append(d.lateDeletes, lateDelete{s, c.Kind, c.Key, !origins || c.Origin == record.GuardedChange})
		}
		// After the flip the next engine writes to this source. Late deletes are counted, and nothing
		// is applied.
		if e.over() {
			continue
		}
		if !seen[id] {
			seen[id] = true
			d.ids = append(d.ids, id)
			d.hits[s] = append(d.hits[s], id)
		}
	}
	return d
}
