package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// This file follows the changes of the target, from the whole comparison on. What nobody of ours
// has made is repaired at once and compared, so that no comparison is believed for longer than it
// is true. What may be ours, and is not known to be, as after a restart, is compared.

// watching is the work that an error of the target's stream is noted under.
const watching = "watch the target"

// watchTarget follows the target for all owned shards that were, or are being, compared as a
// whole. It ends with the direction: clients write to the target then.
func (e *Engine) watchTarget(ctx context.Context) error {
	for {
		over := false
		err := e.await(ctx, func() bool {
			over = e.over()
			return over || e.anyWatched()
		})
		if err != nil || over {
			return err
		}
		err = e.persist(ctx, watching, func() error { return e.watchOnce(ctx) })
		var lost *historyLost
		if errors.As(err, &lost) {
			err = e.watchAgain(ctx, lost)
		}
		if err != nil && !errors.Is(err, errOver) {
			return err
		}
	}
}

// anyWatched reports whether a shard has a place in the target's changes. e.mu is held.
func (e *Engine) anyWatched() bool {
	for _, s := range e.shards {
		if !s.watched.IsZero() {
			return true
		}
	}
	return false
}

// watchOnce reads one stream until it fails, the direction ends, or another shard needs an
// earlier beginning (nil).
func (e *Engine) watchOnce(ctx context.Context) error {
	from := e.watchFrom()
	if from.IsZero() {
		return nil
	}
	toks, err := e.watchedTokens(ctx)
	if err != nil {
		return err
	}
	listen, restart := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if e.await(listen, func() bool { return e.rewatch || e.over() }) == nil {
			restart()
		}
	})
	defer waiting.Wait()
	defer restart()
	e.own.begin(true)
	defer e.own.begin(false)
	stream, err := e.Target.Follow(ctx, from, toks)
	if err != nil {
		return lostAt(from, err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := stream.Close(stop); err != nil {
			e.Log.Debug("close stream of the target", zap.Error(err))
		}
	}()
	for {
		b, err := stream.Next(listen)
		if err != nil && listen.Err() != nil && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return lostAt(from, err)
		}
		e.recovered(watching)
		if err := e.consumeTarget(ctx, b); err != nil {
			return err
		}
		from = b.Pos
	}
}

// watchFrom is where the target's stream has to begin for all shards that have a place in it.
func (e *Engine) watchFrom() (from record.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rewatch = false
	for _, s := range e.shards {
		if s.watching = !s.watched.IsZero(); s.watching && (from.IsZero() || s.watched.Compare(from) < 0) {
			from = s.watched
		}
	}
	return from
}

// watchedTokens are the collections of the target that are synced. What lies in the lineage
// is of no client.
func (e *Engine) watchedTokens(ctx context.Context) (record.Tokens, error) {
	toks, err := e.targetTokens(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range e.Direction.TargetKinds() {
		if !transform.SyncsTo(e.Direction, k.Name) || transform.IsLineage(k.Name) {
			delete(toks, k.Name)
		}
	}
	return toks, nil
}

// intruded is what a batch of the target's changes asks for.
type intruded struct {
	repair  []transform.GroupID            // changed by others
	hits    map[*shard][]transform.GroupID // these, and what may be ours
	orphans []transform.Orphan
}

// consumeTarget repairs what others have changed, has it compared, and advances the shards.
func (e *Engine) consumeTarget(ctx context.Context, b record.ChangeBatch) error {
	if len(b.Changes) > 0 {
		if err := e.await(ctx, func() bool { return e.roomForLate() || e.over() || e.rewatch }); err != nil {
			return err
		}
	}
	in := e.intrusions(b)
	if err := e.parkOrphans(ctx, in.orphans); err != nil {
		return err
	}
	if len(in.repair) > 0 {
		e.Log.Warn("others have written to the target: its records are made anew", zap.Int("groups", len(in.repair)),
			zap.String("direction", string(e.key)))
		// No guard that the target has is later.
		now, err := e.Source.Position(ctx)
		if err != nil {
			return fmt.Errorf("position: %w", err)
		}
		if err := e.bring(ctx, in.repair, now.At, forRepair); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return nil
	}
	for _, s := range e.shards {
		if !s.watches(b) {
			continue
		}
		for _, id := range in.hits[s] {
			s.addForeign(id)
		}
		s.watched, s.watchedAt = b.Pos, time.Now()
		s.dirty = s.dirty || len(in.hits[s]) > 0
	}
	if len(in.hits) > 0 {
		e.wakeHousekeeping()
	}
	e.announce()
	return nil
}

// watches reports whether a batch of the target's stream is this shard's. Engine.mu is held.
func (s *shard) watches(b record.ChangeBatch) bool {
	return s.watching && !s.leaving && b.Pos.Compare(s.watched) >= 0
}

func (e *Engine) intrusions(b record.ChangeBatch) intruded {
	in := intruded{hits: map[*shard][]transform.GroupID{}}
	seen := map[transform.GroupID]record.Origin{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.Changes {
		switch {
		case c.Marker != "", c.Origin == record.AppliedChange:
			continue
		case c.Origin == record.GuardedChange && e.own.take(c):
			continue
		case c.Delete && e.passesLate(c.Kind):
			continue // the engine that was before counts it, and has it brought back
		}
		id, ok, err := e.Direction.GroupOfTarget(c.Kind, c.Key)
		if err != nil {
			if !c.Delete {
				in.orphans = append(in.orphans, transform.Orphan{Kind: c.Kind, Key: c.Key, Err: err})
			}
			continue
		}
		s := e.shards[e.shardOf(id)]
		if _, parked := e.parked[id]; !ok || parked || s == nil || !s.watches(b) {
			continue // what is parked is brought when that ends; what a switch left behind must stay
		}
		before, again := seen[id]
		if !again {
			in.hits[s] = append(in.hits[s], id)
		}
		if c.Origin == record.ForeignChange && (!again || before != record.ForeignChange) {
			in.repair = append(in.repair, id)
		}
		if !again || c.Origin == record.ForeignChange {
			seen[id] = c.Origin
		}
	}
	return in
}

// passesLate reports whether deletes in a kind of the target are what passed the fence of the
// latest switch. e.mu is held.
func (e *Engine) passesLate(kind string) bool {
	target, _ := e.record.Namespace(e.Direction.To())
	k, _ := target.Kind(kind)
	return e.plan.InSync && k.Fixed && !k.Hidden && k.Fence == string(record.FenceValidator)
}

// watchAgain has the shards whose target's changes are lost compared as a whole, from both sides.
func (e *Engine) watchAgain(ctx context.Context, lost *historyLost) error {
	e.Log.Error("the change history of the target is lost: everything is compared", zap.String("direction", string(e.key)), zap.Error(lost))
	var behind []int
	e.mu.Lock()
	over, up := e.over(), e.record.Upgrade
	for n, s := range e.shards {
		if over || !s.watching || s.watched.Compare(lost.at) > 0 {
			continue
		}
		s.unwatch()
		if e.pass != nil {
			delete(e.pass.shards, s) // what it has compared of this shard was too early
		}
		behind = append(behind, n)
	}
	e.announce()
	e.mu.Unlock()
	slices.Sort(behind)
	if up != nil && up.State == upgradestate.InitialSyncing && len(behind) > 0 {
		err := e.persist(ctx, "withdraw", func() error { return e.apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: behind}) })
		if err != nil {
			return err
		}
	}
	return wait(ctx, e.cfg.Every) // a history that does not last is not asked for without rest
}

// unwatch forgets the shard's place in the target's changes: nothing that was compared counts.
// Engine.mu is held.
func (s *shard) unwatch() {
	s.watched, s.watching = record.Position{}, false
	s.compareAnew()
}

// watchFromNow begins to watch a shard at a place from before all that is compared of it.
// Engine.mu is held.
func (e *Engine) watchFromNow(s *shard, now record.Position) {
	s.watched, s.watching, e.rewatch = now, false, true
}

// addForeign notes a group that others may have changed in the target. Engine.mu is held.
func (s *shard) addForeign(id transform.GroupID) {
	s.addAgain(id)
	entry := s.late[id]
	if entry.target.IsZero() {
		entry.target = s.watched
		s.foreign++
	}
	entry.noted = entry.seq
	s.late[id] = entry
}

// targetMark is the place in the target's changes that can be stored: what is before it was looked
// at, and compared where others had changed it. Engine.mu is held.
func (s *shard) targetMark() record.Position {
	to := s.watched
	for _, entry := range s.late {
		if !entry.target.IsZero() && entry.target.Compare(to) < 0 {
			to = entry.target
		}
	}
	return to
}

// foreignStays counts the groups that others have changed and that a repair did not mend.
func (s *shard) foreignStays() (n int) {
	for _, entry := range s.late {
		if !entry.target.IsZero() && entry.tries >= recheckTries {
			n++
		}
	}
	return n
}

// leftAt is a place in the changes of the target from before anybody but its application, which
// the latest switch has fenced, can have changed it. Zero: there is none any longer.
func (e *Engine) leftAt(ctx context.Context) (record.Position, error) {
	d := e.current()
	key, ok := Left(d, e.Direction.To())
	if !ok {
		return record.Position{}, nil
	}
	var first record.Position
	for n := range e.cfg.Ring {
		c, found, err := e.Journal.LoadCheckpoint(ctx, key, n)
		if err != nil {
			return first, fmt.Errorf("checkpoint of the direction before: %w", err)
		}
		if !found || c.Position.IsZero() {
			return record.Position{}, nil
		}
		if first.IsZero() || c.Position.Compare(first) < 0 {
			first = c.Position
		}
	}
	toks, err := e.watchedTokens(ctx)
	if err != nil {
		return record.Position{}, err
	}
	now, err := e.Target.Position(ctx)
	if err != nil {
		return first, fmt.Errorf("position of %s: %w", e.Direction.To(), err)
	}
	stream, err := e.Target.Follow(ctx, first, toks)
	if errors.Is(err, record.ErrHistoryLost) {
		return record.Position{}, nil
	}
	if err != nil {
		return record.Position{}, fmt.Errorf("changes of %s: %w", e.Direction.To(), err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }() // it was read only
	target, _ := d.Namespace(e.Direction.To())
	for at := first; at.At.Compare(now.At) < 0; {
		b, err := stream.Next(ctx)
		if errors.Is(err, record.ErrHistoryLost) {
			return record.Position{}, nil
		}
		if err != nil {
			return record.Position{}, fmt.Errorf("changes of %s: %w", e.Direction.To(), err)
		}
		// Up to the fence they are the application's own.
		for _, c := range b.Changes {
			if k, ok := target.Kind(c.Kind); ok && c.Marker != "" && c.Marker == k.Fenced {
				return at, nil
			}
		}
		at = b.Pos
	}
	return first, nil // it is behind the fence already
}

// targetFloor is the place in the target's changes that a switch began at.
func targetFloor(d upgradestate.Deployment) record.Version {
	var at record.Position
	if u := d.Upgrade; u != nil && u.TargetSince != "" {
		if err := json.Unmarshal([]byte(u.TargetSince), &at); err != nil {
			return record.Version{} // of a newer binary, which compares by itself
		}
	}
	return at.At
}
