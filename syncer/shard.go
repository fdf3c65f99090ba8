package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"dbcontroller/coord"
	"dbcontroller/record"
	"dbcontroller/shards"
	"dbcontroller/transform"
)

// shard is what the engine knows of a shard that it owns. Guarded by Engine.mu.
type shard struct {
	lock    shards.Lock
	leaving bool
	// followed: the running stream began at or before the shard's position. Without it
	// the shard waits for another stream.
	followed bool

	// copying
	todo   map[string]*rangeTask // by "<kind>/<index>", what is not copied yet
	done   []string
	copied int64

	// following: applied is how far changes are applied, compared how far they are also
	// compared again. late holds the groups applied since and not compared yet.
	applied  record.Position
	compared record.Position
	late     map[transform.GroupID]lateEntry
	lateSeq  uint64
	markers  map[string]string // fences seen up to applied
	// comparedMarkers are those seen up to compared, as the checkpoint has them.
	comparedMarkers map[string]string
	lag             time.Duration
	level           time.Time // since when changes are applied as they come; zero while they are not
	behind          time.Time // since when they are not; zero while they are

	// comparing the whole
	verify   []*rangeTask
	verified bool

	dirty bool // the checkpoint in memory is ahead of the stored one

	appliedCount, comparedCount, mismatched, lateDeletes, retries int64
	rate                                                          meter
}

// addLate notes a group for (another) comparison. Engine.mu is held.
func (s *shard) addLate(id transform.GroupID) {
	s.lateSeq++
	s.late[id] = lateEntry{seq: s.lateSeq, found: s.late[id].found}
}

// addDifferent notes a group that the comparison of a range found different. Until it
// has settled the shard does not count as compared, whoever owns it. Engine.mu is held.
func (s *shard) addDifferent(id transform.GroupID) {
	s.addLate(id)
	entry := s.late[id]
	entry.found = true
	s.late[id] = entry
}

// advanceCompared moves what is compared to a place that was applied. Engine.mu is held.
func (s *shard) advanceCompared(to record.Position, markers map[string]string) {
	s.compared, s.comparedMarkers = to, markers
}

// rangeTask is one range of one kind, being copied or compared.
type rangeTask struct {
	name   string // "<kind>/<index>"
	kind   string
	rest   record.Range
	target bool // compare from the target's side
	taken  bool
}

// watchOwnership adopts shards that were gained, hands over those that shall leave, and
// forgets those that were lost.
func (e *Engine) watchOwnership(ctx context.Context) error {
	for {
		if err := e.adopt(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.Ownership.Changes():
		case <-e.readopt:
		}
	}
}

func (e *Engine) adopt(ctx context.Context) error {
	for _, n := range e.Ownership.Leaving() {
		e.mu.Lock()
		if s := e.shards[n]; s != nil {
			s.leaving = true
		}
		e.mu.Unlock()
		if err := e.saveCheckpoints(ctx, true); err != nil {
			// The next owner repeats what is not in the checkpoint; that is safe.
			e.Log.Info("shard leaves without a last checkpoint", zap.Int("shard", n), zap.Error(err))
		}
		if err := e.Ownership.Release(ctx, n); err != nil {
			return fmt.Errorf("release shard %d: %w", n, err)
		}
	}
	owned := e.Ownership.Owned()
	e.mu.Lock()
	for n, s := range e.shards {
		if lock, ok := owned[n]; !ok || lock.Create != s.lock.Create {
			delete(e.shards, n)
		}
	}
	var gained []int
	for n := range owned {
		if e.shards[n] == nil {
			gained = append(gained, n)
		}
	}
	e.mu.Unlock()
	slices.Sort(gained)
	for _, n := range gained {
		if err := e.persist(ctx, "load checkpoint", func() error { return e.load(ctx, owned[n]) }); err != nil {
			return err
		}
	}
	if len(gained) > 0 {
		// What the former owners have parked blocks a report from the beginning.
		return e.persist(ctx, "list parked", func() error { return e.refreshParked(ctx) })
	}
	return nil
}

// load brings a shard to where its checkpoint says, or to the plan's start.
func (e *Engine) load(ctx context.Context, lock shards.Lock) error {
	c, found, err := e.Journal.LoadCheckpoint(ctx, e.key, lock.Shard)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !found {
		c = Checkpoint{Position: e.plan.Start}
	}
	s := &shard{
		lock: lock, todo: map[string]*rangeTask{}, done: c.Done, copied: c.Count,
		applied: c.Position, compared: c.Position, late: map[transform.GroupID]lateEntry{},
		markers: maps.Clone(c.Markers), comparedMarkers: c.Markers, verified: c.Verified,
	}
	if s.markers == nil {
		s.markers = map[string]string{}
	}
	for kind, ranges := range e.plan.Ranges {
		for i, r := range ranges {
			name := rangeName(kind, i)
			if i%e.cfg.Ring != lock.Shard || slices.Contains(s.done, name) {
				continue
			}
			if rest, ok := c.Copied[name]; ok {
				r = rest
			}
			s.todo[name] = &rangeTask{name: name, kind: kind, rest: r}
		}
	}
	e.shards[lock.Shard] = s
	e.restart = true
	e.announce()
	e.Log.Info("shard is adopted", zap.Int("shard", lock.Shard), zap.String("direction", string(e.key)),
		zap.Int("ranges", len(s.todo)), zap.Int64("copied", s.copied))
	return nil
}

func rangeName(kind string, i int) string { return kind + "/" + strconv.Itoa(i) }

// checkpoint is what can be stored of a shard now.
func (s *shard) checkpoint() Checkpoint {
	c := Checkpoint{
		Position: s.compared, Markers: maps.Clone(s.comparedMarkers), Copied: map[string]record.Range{},
		Done: slices.Clone(s.done), Count: s.copied, Verified: s.verified,
	}
	for _, entry := range s.late {
		if entry.found {
			c.Verified = false // what is known to differ is found again by the next owner
		}
	}
	for name, t := range s.todo {
		c.Copied[name] = t.rest
	}
	return c
}

// checkpointChunk is how many checkpoints go into one transaction: with their locks
// they stay below coord.MaxOps.
const checkpointChunk = 16

// saveCheckpoints stores the checkpoints that have changed (all: also those that only
// moved on without any record).
func (e *Engine) saveCheckpoints(ctx context.Context, all bool) error {
	e.mu.Lock()
	var save []int
	for n, s := range e.shards {
		if s.dirty || all {
			save = append(save, n)
		}
	}
	e.mu.Unlock()
	slices.Sort(save)
	for chunk := range slices.Chunk(save, checkpointChunk) {
		if err := e.saveChunk(ctx, chunk); err != nil {
			return fmt.Errorf("save checkpoints: %w", err)
		}
	}
	return nil
}

func (e *Engine) saveChunk(ctx context.Context, chunk []int) error {
	cs := map[int]Checkpoint{}
	var locks []coord.Condition
	e.mu.Lock()
	for _, n := range chunk {
		if s := e.shards[n]; s != nil {
			cs[n] = s.checkpoint()
			locks = append(locks, s.lock.Condition())
			s.dirty = false
		}
	}
	e.mu.Unlock()
	if len(cs) == 0 {
		return nil
	}
	err := e.Journal.SaveCheckpoints(ctx, e.key, cs, locks...)
	if err != nil {
		e.mu.Lock()
		for n := range cs {
			if s := e.shards[n]; s != nil {
				s.dirty = true
			}
		}
		e.mu.Unlock()
	}
	return err
}

// meter is a rate over the recent seconds.
type meter struct {
	at    time.Time
	count int64
	rate  float64
}

func (m *meter) observe(now time.Time, count int64) float64 {
	if m.at.IsZero() {
		m.at, m.count = now, count
		return 0
	}
	if span := now.Sub(m.at).Seconds(); span >= 0.9 {
		m.rate = float64(count-m.count) / span
		m.at, m.count = now, count
	}
	return m.rate
}
