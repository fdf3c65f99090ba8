package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// This file follows the changes of the target from the whole comparison on. Foreign changes are
// repaired and compared at once, so that no result of a comparison outlives the state that it
// compared. Changes that may be this deployment's own, as after a restart, are only compared.

// watching names the work on the target's stream in logs and progress.
const watching = "watch the target"

// watchTarget follows the target for owned shards with a place in its changes. It ends with the
// direction, since clients then write to the target.
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

// anyWatched reports whether an owned shard has a place in the target's changes. e.mu is held.
func (e *Engine) anyWatched() bool {
	for _, s := range e.shards {
		if !s.watched.IsZero() {
			return true
		}
	}
	return false
}

// watchOnce reads one stream until it fails, or returns nil when the direction ends or a shard
// needs an earlier beginning.
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
	// In reverse order: restart ends the goroutine, then Wait returns.
	defer waiting.Wait()
	defer restart()
	// Open before the stream, or the stream would compare this engine's first writes for nothing.
	e.own.begin(true)
	defer e.own.begin(false)
	stream, err := e.Target.Follow(ctx, from, toks)
	if err != nil {
		return lostAt(from, err)
	}
	defer func() {
		if err := closing.Bounded(ctx, stream.Close); err != nil {
			e.Log.Debug("close stream of the target", zap.Error(err))
		}
	}()
	ahead := e.fencesAhead(from)
	for {
		b, err := stream.Next(listen)
		// The read was cancelled for a restart or the end of the direction.
		if err != nil && listen.Err() != nil && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return lostAt(from, err)
		}
		e.recovered(watching)
		if err := e.consumeTarget(ctx, b, ahead); err != nil {
			return err
		}
		from = b.Pos
		if n := len(b.Changes); n > 0 && n < gatherBelow {
			e.gather(listen, targetGathers, func() bool { return e.switching() || e.over() || e.rewatch })
		}
	}
}

// Changes of the target gather for targetGathers between two reads of its stream. Nearly all are this
// engine's own, and a read that finds one costs the server and this process nearly as much as one that
// finds a hundred. After a read of gatherBelow changes or more the next one begins at once, or the
// stream could fall behind. A switch waits for these reads, so it ends the wait.
const (
	targetGathers = 100 * time.Millisecond
	gatherBelow   = 1000
)

// watchFrom returns the position where the target's stream must begin, zero without watched shards.
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

// watchedTokens returns the synced collections of the target. Lineage is left out, since no client
// reads it.
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

// intruded is the work of a batch of the target's changes.
type intruded struct {
	repair  []transform.GroupID            // with foreign changes
	hits    map[*shard][]transform.GroupID // these and groups with changes of unknown origin, by shard
	orphans []transform.Orphan
}

// consumeTarget repairs groups with foreign changes, adds them to the late sets and advances the
// shards. ahead is the one of intrusions.
func (e *Engine) consumeTarget(ctx context.Context, b record.ChangeBatch, ahead map[string]SeenFence) error {
	if len(b.Changes) > 0 {
		if err := e.await(ctx, func() bool { return e.roomForLate() || e.over() || e.rewatch }); err != nil {
			return err
		}
	}
	in := e.intrusions(b, ahead)
	// Everything that may fail comes before the shards advance, so that an error repeats the batch.
	if err := e.parkOrphans(ctx, in.orphans); err != nil {
		return err
	}
	if len(in.repair) > 0 {
		if n := e.counted("foreign writes", len(in.repair)); n > 0 {
			e.Log.Warn("others have written to the target: its records are made anew", zap.Int("groups", n),
				zap.String("direction", string(e.key)))
		}
		// A position read now is not older than any guard in the target, so that the repair wins.
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
	// Clients write to the target now. Its changes are no longer foreign.
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

// watches reports whether a batch of the target's stream concerns this shard. Engine.mu is held.
func (s *shard) watches(b record.ChangeBatch) bool {
	return s.watching && !s.leaving && b.Pos.Compare(s.watched) >= 0
}

// fencesAhead returns the fences, by kind, that a stream from this position meets. Changes before them
// are the application's: the direction that the switch ended has taken them along. Repairing them
// would delete records of the application that were waived and are not listed.
func (e *Engine) fencesAhead(from record.Position) map[string]SeenFence {
	e.mu.Lock()
	defer e.mu.Unlock()
	ahead := maps.Clone(e.plan.Fences)
	maps.DeleteFunc(ahead, func(_ string, f SeenFence) bool { return from.Compare(f.After) > 0 }) // perhaps behind it
	return ahead
}

// intrusions returns the work of a batch. It removes from ahead the fences that the batch contains.
func (e *Engine) intrusions(b record.ChangeBatch, ahead map[string]SeenFence) intruded {
	in := intruded{hits: map[*shard][]transform.GroupID{}}
	seen := map[transform.GroupID]record.Origin{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.Changes {
		fence, before := ahead[c.Kind]
		switch {
		case c.Marker != "":
			if before && c.Marker == fence.Marker {
				delete(ahead, c.Kind)
			}
			continue
		case before, c.Origin == record.AppliedChange:
			continue
		case c.Origin == record.GuardedChange && e.own.take(c):
			continue
		}
		id, ok, err := e.Direction.GroupOfTarget(c.Kind, c.Key)
		if err != nil {
			// A deleted orphan needs no entry.
			if !c.Delete {
				in.orphans = append(in.orphans, transform.Orphan{Kind: c.Kind, Key: c.Key, Err: err})
			}
			continue
		}
		s := e.shards[e.shardOf(id)]
		if _, parked := e.parked[id]; !ok || parked || s == nil || !s.watches(b) {
			continue // a parked group is written when it is unparked; a waived one must stay
		}
		origin, again := seen[id]
		if !again {
			in.hits[s] = append(in.hits[s], id)
		}
		// An earlier change of the batch may have been of unknown origin. The foreign one decides.
		if c.Origin == record.ForeignChange && (!again || origin != record.ForeignChange) {
			in.repair = append(in.repair, id)
		}
		if !again || c.Origin == record.ForeignChange {
			seen[id] = c.Origin
		}
	}
	return in
}

// watchAgain makes the shards that lost changes of the target compare everything again, from both
// sides.
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
			delete(e.pass.shards, s) // the pass compared part of this shard too early
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
	return wait(ctx, e.cfg.Every) // a short history must not cause a busy loop
}

// unwatch discards the shard's place in the target's changes, and with it all results of
// comparisons. Engine.mu is held.
func (s *shard) unwatch() {
	s.watched, s.watching = record.Position{}, false
	s.compareAnew()
}

// watchFromNow sets a shard's place in the target's changes, taken before its comparison. Engine.mu
// is held.
func (e *Engine) watchFromNow(s *shard, now record.Position) {
	s.watched, s.watching, e.rewatch = now, false, true
}

// addForeign adds a group with a possibly foreign change in the target. Engine.mu is held.
func (s *shard) addForeign(id transform.GroupID) {
	s.addAgain(id)
	entry := s.late[id]
	// The earliest change counts: the stored place must not pass it.
	if entry.target.IsZero() {
		entry.target = s.watched
		s.foreign++
	}
	s.late[id] = entry
}

// targetMark returns the place in the target's changes for a checkpoint. Foreign changes before it
// are compared. Engine.mu is held.
func (s *shard) targetMark() record.Position {
	to := s.watched
	for _, entry := range s.late {
		if !entry.target.IsZero() && entry.target.Compare(to) < 0 {
			to = entry.target
		}
	}
	return to
}

// foreignStays counts groups with foreign changes that a repair has not made equal. Engine.mu is
// held.
func (s *shard) foreignStays() (n int) {
	for _, entry := range s.late {
		if !entry.target.IsZero() && entry.tries >= recheckTries {
			n++
		}
	}
	return n
}

// leftAt returns a place in the target's changes before any foreign change, and Plan.Fences. The
// latest switch has fenced the application there, so earlier changes are its own. A zero place means
// that no such place is left.
func (e *Engine) leftAt(ctx context.Context) (record.Position, map[string]SeenFence, error) {
	d := e.current()
	key, ok := Left(d, e.Direction.To())
	if !ok {
		return record.Position{}, nil, nil
	}
	var first place // its markers are nil if they are unknown
	for n := range e.cfg.Ring {
		c, found, err := e.Journal.LoadCheckpoint(ctx, key, n)
		if err != nil {
			return record.Position{}, nil, fmt.Errorf("checkpoint of the direction before: %w", err)
		}
		// Without the position of each shard no place is known to be early enough.
		if !found || c.Position.IsZero() {
			return record.Position{}, nil, nil
		}
		at := place{at: c.Position, markers: c.Markers}.leaving()
		if !c.Left.IsZero() {
			at = place{at: c.Left, markers: c.LeftMarkers}
		}
		if first.at.IsZero() || at.at.Compare(first.at) < 0 {
			first = at
		}
	}
	target, _ := d.Namespace(e.Direction.To())
	at, fences, err := e.findFences(ctx, first, target)
	if errors.Is(err, record.ErrHistoryLost) {
		return record.Position{}, nil, nil
	}
	if err != nil {
		return record.Position{}, nil, fmt.Errorf("changes of %s: %w", e.Direction.To(), err)
	}
	return at, fences, nil
}

// findFences reads the target's changes from a place in the application's time up to now. It returns
// the fences that it met, by kind, and a position before all foreign changes: the last one before the
// first fence, or its own place if that is, or may be, behind the fence of a kind already.
func (e *Engine) findFences(ctx context.Context, from place, target upgradestate.Namespace) (record.Position, map[string]SeenFence, error) {
	first := from.at
	toks, err := e.watchedTokens(ctx)
	if err != nil {
		return first, nil, err
	}
	fences, ahead, behind := map[string]SeenFence{}, map[string]string{}, from.markers == nil
	for kind := range toks {
		switch k, _ := target.Kind(kind); {
		case k.Fenced == "":
		case from.markers[kind] == k.Fenced:
			behind = true
		// Its marker may be met although the place is behind the fence.
		case from.markers == nil && repeats(k):
		default:
			ahead[kind] = k.Fenced
		}
	}
	now, err := e.Target.Position(ctx)
	if err != nil {
		return first, nil, err
	}
	stream, err := e.Target.Follow(ctx, first, toks)
	if err != nil {
		return first, nil, err
	}
	defer closing.Bounded(ctx, stream.Close) //nolint:errcheck // only read
	for at := first; len(ahead) > 0 && at.At.Compare(now.At) < 0; {
		b, err := stream.Next(ctx)
		if err != nil {
			return first, nil, err
		}
		for _, c := range b.Changes {
			if c.Marker != "" && c.Marker == ahead[c.Kind] {
				if len(fences) == 0 && !behind {
					first = at
				}
				delete(ahead, c.Kind)
				fences[c.Kind] = SeenFence{Marker: c.Marker, After: at}
			}
		}
		at = b.Pos
	}
	return first, fences, nil
}

// repeats reports whether the marker of a kind's fence may come more than once: the driver sets such a
// fence again right before the flip. A late delete between the two must count as a foreign change.
func repeats(k upgradestate.Kind) bool {
	return k.Fence == string(record.FenceValidator) || k.Fence == string(record.FenceWriteBlock)
}

// targetFloor returns the version of the target at which a switch began, zero without a switch.
func targetFloor(d upgradestate.Deployment) record.Version {
	var at record.Position
	if u := d.Upgrade; u != nil && u.TargetSince != "" {
		if err := json.Unmarshal([]byte(u.TargetSince), &at); err != nil {
			return record.Version{} // from a newer binary, which makes the comparison itself
		}
	}
	return at.At
}
