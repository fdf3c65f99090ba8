package syncer

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file is about units that cannot be migrated yet. A group by content is known only as far as
// changes were met. Its other members may have changed in the same transaction and arrive in
// another batch or on another controller that was away.
//
// So a failing unit waits in two places. In the lineage, the change that completes its group picks
// it up. In the late set of its shard, each comparison tries it again and finally parks it. Until
// then its shard is not ready and its checkpoint does not pass the change. After more than the
// allowed lag its ready report is withdrawn, since no switch may start with a failing unit.

// failure describes a unit that could not be migrated.
type failure struct {
	since   time.Time      // of the first failure without a success since
	first   record.Version // source version at the first failure
	version record.Version // source version at the latest failure
	err     error
}

const (
	// parkTries is the number of comparison intervals that a unit may fail before it is parked. It
	// applies once all shards have applied the version of the first failure.
	parkTries = 4
	// parkTriesBehind is the same for shards that are behind, or whose stored checkpoints do not
	// show that they are not. It is bounded because a waiting shard's checkpoint stands still.
	parkTriesBehind = 20
)

// maxFailing bounds the number of waiting units. More are not parts of a few transactions. They are
// parked at once, which also slows down the work that finds them.
const maxFailing = 2000

// failUnit records the failure of a unit by content. During a copy groups are incomplete, and the
// comparison after it meets each record again. At other times a unit that was not asked for already
// waits in the engine that met its change.
func (e *Engine) failUnit(ctx context.Context, f transform.Failure, at record.Version, asked map[transform.GroupID]bool) error {
	if !asked[f.Unit] || e.noteFailure(f.Unit, failure{version: at, err: f.Err}) {
		return nil
	}
	return e.park(ctx, f.Unit, at, f.Err)
}

// noteFailure makes a unit wait in the late set. It returns false if the unit must be parked now:
// it is parked already and only its reason changes, too many units wait, or its shard is not owned.
func (e *Engine) noteFailure(id transform.GroupID, f failure) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, parked := e.parked[id]; parked {
		return false
	}
	// A repeated failure keeps its first time, or the unit would wait forever.
	f.since, f.first = time.Now(), f.version
	if before, again := e.failing[id]; again {
		f.since, f.first = before.since, before.first
	} else if len(e.failing) >= maxFailing {
		return false
	}
	if !e.isLate(id) {
		s := e.shards[e.shardOf(id)]
		// Without the shard this engine has no late set for the unit.
		if s == nil {
			return false
		}
		s.addLate(id)
	}
	e.failing[id] = f
	return true
}

// isLate reports whether a unit is in a late set: its own shard's, or the one of the shard whose
// range met it. e.mu is held.
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

// failingIn counts the units in a shard's late set that have failed for at least a duration. e.mu
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
	// The rest of a group may be in a shard that is behind. One answer for the newest version
	// suffices.
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
		// If the unit succeeded during the call to the journal, the new entry is wrong.
		if e.dropFailing(id) {
			continue
		}
		if err := e.unpark(ctx, id, f.version); err != nil { // it was migrated meanwhile
			return err
		}
	}
	return nil
}

// dropFailing removes a parked unit from the late sets and reports whether it was still failing. It
// does not leave that to the next comparison: the list of parked entries read before that may omit
// the unit, since the journal lists only so many.
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
			// The checkpoint may now pass the change.
			s.moveCompared()
		}
	}
	return true
}

// anyBehind reports whether some shard is not known to have applied a version. It remembers
// positions of other controllers' shards and does not load them again once they suffice.
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

// compareLeft adds the members that left their group to the late set.
func (e *Engine) compareLeft(c *transform.Component) {
	left := c.Left()
	if len(left) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range c.Units {
		if s := e.shards[e.shardOf(id)]; s != nil {
			// The shard of the unit that caused the change keeps its checkpoint until they are
			// compared.
			for _, member := range left {
				s.addAgain(member)
			}
			return
		}
	}
}
