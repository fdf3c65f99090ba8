package syncer

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file is about units that could not be migrated. That need not be their fault:
// whom a group by content consists of is known only as far as changes were met, and its
// other members may have changed in the same transaction and come in another batch, on
// another controller, which may have been away. So a unit that fails waits, noted in the
// lineage, where the change that completes its group takes it along, and among the late
// changes of its shard, where it is tried again each time they are compared, and parked at
// last. Its shard does not become ready meanwhile, its checkpoint does not move past it,
// and a report is taken back where that lasts longer than changes may lag: no switch must
// begin with it.

// failure is a unit that could not be migrated.
type failure struct {
	since   time.Time      // without a success in between
	first   record.Version // of the source then
	version record.Version // of the source at last
	err     error
}

const (
	// parkTries is for how many intervals of comparisons a unit fails before it is parked
	// although all shards have come as far as the source was when it failed first.
	parkTries = 4
	// parkTriesBehind is the same where shards have not, or others have not stored yet that
	// they have. It is bounded, for a shard that waits keeps its checkpoint where it is.
	parkTriesBehind = 20
)

// maxFailing bounds how many units wait. More than that are not the halves of a few
// transactions; they are parked as they are met, which also slows down what meets them.
const maxFailing = 2000

// failUnit notes a unit by content that failed. In the middle of a copy groups are not
// complete, and the comparison after it meets each of their records again. Outside of one,
// what was not asked for waits already, with the engine that met its change.
func (e *Engine) failUnit(ctx context.Context, f transform.Failure, at record.Version, asked map[transform.GroupID]bool) error {
	if !asked[f.Unit] || e.noteFailure(f.Unit, failure{version: at, err: f.Err}) {
		return nil
	}
	return e.park(ctx, f.Unit, at, f.Err)
}

// noteFailure reports whether a unit is compared late here, so that it can wait. What is
// parked stays so, with the reason of now.
func (e *Engine) noteFailure(id transform.GroupID, f failure) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, parked := e.parked[id]; parked {
		return false
	}
	f.since, f.first = time.Now(), f.version
	if before, again := e.failing[id]; again {
		f.since, f.first = before.since, before.first
	} else if len(e.failing) >= maxFailing {
		return false
	}
	if !e.isLate(id) {
		s := e.shards[e.shardOf(id)]
		if s == nil {
			return false
		}
		s.addLate(id)
	}
	e.failing[id] = f
	return true
}

// isLate reports whether a unit is in a late set: that of its shard, or of the one whose
// range it was met in. e.mu is held.
func (e *Engine) isLate(id transform.GroupID) bool {
	if s := e.shards[e.shardOf(id)]; s != nil {
		if _, late := s.late[id]; late {
			return true
		}
	}
	for _, s := range e.shards {
		if _, late := s.late[id]; late {
			return true
		}
	}
	return false
}

// failingIn counts the units of a shard's late set that have been failing for a time. e.mu
// is held.
func (e *Engine) failingIn(s *shard, least time.Duration) (n int) {
	for id, f := range e.failing {
		if _, late := s.late[id]; late && time.Since(f.since) >= least {
			n++
		}
	}
	return n
}

// parkFailing parks the units that have failed for long enough.
func (e *Engine) parkFailing(ctx context.Context) error {
	due := map[transform.GroupID]failure{}
	var newest record.Version
	e.mu.Lock()
	for id, f := range e.failing {
		if time.Since(f.since) >= parkTries*e.cfg.Every {
			due[id] = f
			if f.first.Compare(newest) > 0 {
				newest = f.first
			}
		}
	}
	e.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	behind, err := e.anyBehind(ctx, newest)
	if err != nil {
		return err
	}
	for id, f := range due {
		if behind && time.Since(f.since) < parkTriesBehind*e.cfg.Every {
			continue
		}
		if err := e.park(ctx, id, f.version, f.err); err != nil {
			return err
		}
		if e.dropFailing(id) {
			continue
		}
		if err := e.unpark(ctx, id, f.version); err != nil { // it came through meanwhile
			return err
		}
	}
	return nil
}

// dropFailing has nothing wait for a unit that is parked, and reports whether it failed until
// then. It is not left to the next comparison: the list of what is parked that is read before
// that need not name it, for there may be more than the journal lists.
func (e *Engine) dropFailing(id transform.GroupID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, fails := e.failing[id]; !fails {
		return false
	}
	delete(e.failing, id)
	for _, s := range e.shards {
		if _, late := s.late[id]; late {
			s.dropLate(id)
			s.moveCompared()
		}
	}
	return true
}

// anyBehind reports whether a shard is not known to have applied what a version holds. What
// was seen once of another controller's is not asked for again.
func (e *Engine) anyBehind(ctx context.Context, version record.Version) (bool, error) {
	for n := range e.cfg.Ring {
		e.mu.Lock()
		at, mine := e.others[n], e.shards[n]
		if mine != nil {
			at = mine.applied.at.At
		}
		e.mu.Unlock()
		switch {
		case at.Compare(version) >= 0:
			continue
		case mine != nil:
			return true, nil
		}
		c, _, err := e.Journal.LoadCheckpoint(ctx, e.key, n)
		if err != nil {
			return false, fmt.Errorf("checkpoint of shard %d: %w", n, err)
		}
		e.mu.Lock()
		e.others[n] = c.Position.At
		e.mu.Unlock()
		if c.Position.At.Compare(version) < 0 {
			return true, nil
		}
	}
	return false, nil
}

// compareLeft has groups compared late that units have left.
func (e *Engine) compareLeft(c *transform.Component) {
	left := c.Left()
	if len(left) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range c.Units {
		if s := e.shards[e.shardOf(id)]; s != nil {
			for _, member := range left {
				s.addAgain(member)
			}
			return
		}
	}
}
