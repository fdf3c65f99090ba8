package syncer

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// tail follows the source's changes for all owned shards with one stream, from the
// earliest of their positions. It begins again when a shard with an earlier position
// was gained; the others skip what they have.
func (e *Engine) tail(ctx context.Context) error {
	for {
		if err := e.await(ctx, func() bool { return len(e.shards) > 0 }); err != nil {
			return err
		}
		err := e.persist(ctx, "follow changes", func() error { return e.follow(ctx) })
		if err != nil {
			return err
		}
	}
}

// follow reads one stream until it fails or has to begin at an earlier position (nil).
func (e *Engine) follow(ctx context.Context) error {
	from, ok := e.earliest()
	if !ok {
		return nil
	}
	stream, err := e.Source.Watch(ctx, from, e.Direction.SourceKinds())
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := stream.Close(stop); err != nil {
			e.Log.Debug("close stream", zap.Error(err))
		}
	}()
	for {
		b, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if again, err := e.consume(ctx, b); err != nil || again {
			return err
		}
	}
}

// earliest is where the stream has to begin for all owned shards. Only these follow it:
// a shard that is adopted later has an earlier position, which this stream has passed.
func (e *Engine) earliest() (record.Position, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restart = false
	var from record.Position
	for _, s := range e.shards {
		s.followed = true
		if from.IsZero() || s.applied.Compare(from) < 0 {
			from = s.applied
		}
	}
	return from, len(e.shards) > 0
}

// backlog is the size of a batch from which on the stream has more waiting.
const backlog = 1000

// consume applies one batch and advances the shards past it. A batch that ends where a
// shard is already is consumed again: several changes can share one position. again asks
// for a new stream.
func (e *Engine) consume(ctx context.Context, b record.ChangeBatch) (again bool, err error) {
	arrived := time.Now()
	ids, hits, ungrouped := e.dirtyGroups(b)
	if err := e.parkKeys(ctx, ungrouped); err != nil {
		return false, err
	}
	if len(ids) > 0 {
		err := e.syncGroups(ctx, ids, b.Pos.At)
		if errors.Is(err, errOver) {
			// Late changes of a fixed-name kind, after the flip: counted, never applied.
			err = nil
		}
		if err != nil {
			return false, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	again = e.restart
	for n, s := range e.shards {
		if !s.follows(b) {
			continue
		}
		s.applied = b.Pos
		for _, id := range hits[n] {
			s.addLate(id)
		}
		s.appliedCount += int64(len(hits[n]))
		s.lag = 0
		if b.Wall > 0 {
			s.lag = max(0, time.Since(time.UnixMilli(b.Wall)))
		}
		// Wall clocks of two machines may disagree, so that only what this process took
		// decides, and whether the stream had a backlog to deliver.
		if time.Since(arrived) > e.cfg.LagBound || len(b.Changes) >= backlog {
			s.level = time.Time{}
			if s.behind.IsZero() {
				s.behind = arrived
			}
		} else if s.behind = (time.Time{}); s.level.IsZero() {
			s.level = time.Now()
		}
		for _, c := range b.Changes {
			if c.Marker != "" {
				s.markers[c.Kind] = c.Marker
				s.dirty = true
			}
		}
		s.dirty = s.dirty || len(hits[n]) > 0
		if len(s.late) == 0 {
			s.advanceCompared(s.applied, maps.Clone(s.markers))
		}
	}
	e.announce()
	return again, nil
}

// follows reports whether a batch of the running stream is this shard's. One that is
// leaving stays where it is: what is not applied any more must not seem to be. Engine.mu
// is held.
func (s *shard) follows(b record.ChangeBatch) bool {
	return s.followed && !s.leaving && b.Pos.Compare(s.applied) >= 0
}

// fenced reports that a kind's changes come after its fence, which is still in force.
// e.mu is held.
func (e *Engine) fenced(kind string, s *shard) bool {
	source, _ := e.record.Namespace(e.Direction.From())
	k, _ := source.Kind(kind)
	return k.Fixed && k.Fenced != "" && s.markers[kind] == k.Fenced
}

// dirtyGroups are the groups of a batch that belong to owned shards which have not seen
// it yet, each once, and by shard.
func (e *Engine) dirtyGroups(b record.ChangeBatch) (ids []transform.GroupID, hits map[int][]transform.GroupID, ungrouped []ungroupedKey) {
	hits = map[int][]transform.GroupID{}
	seen := map[transform.GroupID]bool{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.Changes {
		if c.Marker != "" {
			continue
		}
		id, ok, err := e.Direction.GroupOf(c.Kind, c.Key)
		if err != nil {
			ungrouped = append(ungrouped, ungroupedKey{c.Kind, c.Key, err})
			continue
		}
		if !ok {
			continue
		}
		s := e.shards[e.shardOf(id)]
		if s == nil || !s.follows(b) {
			continue
		}
		if c.Delete && e.fenced(c.Kind, s) {
			s.lateDeletes++
			e.Log.Warn("delete passed the fence", zap.String("kind", c.Kind), zap.Stringer("key", c.Key))
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
			hits[s.lock.Shard] = append(hits[s.lock.Shard], id)
		}
	}
	return ids, hits, ungrouped
}
