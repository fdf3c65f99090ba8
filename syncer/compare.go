package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// recheckTries is the number of comparisons that may find a group different, with an unchanged
// source, before the group is applied again. giveUpTries is the number before it is parked.
// Differences are normal while the source changes, and errors when they stay.
const (
	recheckTries = 4
	giveUpTries  = 12
)

// comparePage compares one page of a range and returns the number of groups read. Groups that
// differ join the late set, the groups that wait for a second comparison.
func (e *Engine) comparePage(ctx context.Context, t *rangeTask) (int, error) {
	compare := e.Comparer.SourcePage
	if t.target {
		compare = e.Comparer.TargetPage
	}
	var page transform.Comparison
	err := e.unfenced(ctx, func() error {
		e.mu.Lock()
		floor := e.sourceFloor
		e.mu.Unlock()
		src, err := e.sourceView(ctx, floor)
		if err != nil {
			return err
		}
		dst, err := e.targetView(ctx)
		if err != nil {
			return err
		}
		page, err = compare(ctx, src, dst, t.kind, t.rest, e.pageOf(t.kind))
		return err
	})
	if err != nil {
		return 0, err
	}
	// Orphans are parked before the page counts as compared, or a kill would lose them.
	if err := e.parkOrphans(ctx, page.Orphans); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.taken, e.busy = false, time.Now()
	s := e.shards[t.shard]
	// The shard was lost, or its comparison was planned again. The page counts for neither.
	if s == nil || !slices.Contains(s.verify, t) {
		return page.Compared, nil
	}
	for _, id := range page.Differ {
		s.addDifferent(id)
	}
	s.comparedCount += int64(page.Compared)
	t.rest = page.Next
	// The checkpoint holds no places of comparisons. A new owner compares the shard from the start.
	if page.Done {
		s.verify = slices.DeleteFunc(s.verify, func(x *rangeTask) bool { return x == t })
		s.verified = len(s.verify) == 0
		s.dirty = true
		if s.verified {
			e.milestones()
		}
	}
	e.announce()
	return page.Compared, nil
}

// lateEntry is a group that waits for its second comparison.
type lateEntry struct {
	// seq changes with each change of the group. A comparison with an older seq does not count.
	seq   uint64
	tries int    // comparisons that found it different, with this state of the source
	state uint64 // transform.Difference.Source
	found bool   // found by the comparison of a range, not by a change
	noted uint64 // seq of the latest addAgain; a later seq is a change of the source
	from  place  // position of the shard before the change
	// target is the shard's position in the target's changes before a foreign change of the group.
	// Zero means that no foreign change was seen.
	target record.Position
}

// round is one comparison of a shard's late set.
type round struct {
	// shard is compared by pointer. A shard that was lost and regained is another one.
	shard *shard
	ids   map[transform.GroupID]uint64 // seq of each group when the comparison began
	// frozen means that the shard had followed the source up to its fence. A difference then does
	// not disappear by itself.
	frozen bool
}

// compareLate compares the late groups and advances the compared position up to the earliest
// remaining one. It repairs groups that stay different and parks those that cannot be repaired.
func (e *Engine) compareLate(ctx context.Context) (err error) {
	rounds, ids, notBefore := e.beginRounds()
	if len(rounds) == 0 {
		return nil
	}
	ctx, span := e.Tracer.Start(ctx, "compare changes")
	defer func() { endSpan(span, err, attribute.Int("groups", len(ids))) }()
	differ, err := e.compareGroups(ctx, ids, notBefore)
	if err != nil {
		return err
	}
	found := e.endRounds(rounds, differ)
	// The late set still holds these groups, so that an error here repeats the attempt.
	for _, id := range found.unrepairable {
		if err := e.park(ctx, id, record.Version{}, fmt.Errorf("%w: %s", transform.ErrDiffer, differ[id].What)); err != nil {
			return err
		}
	}
	for _, id := range found.agreed {
		if err := e.unparkEqual(ctx, id, notBefore); err != nil {
			return err
		}
	}
	if len(found.repair) > 0 {
		e.Log.Warn("groups differ and are applied again", zap.Int("groups", len(found.repair)),
			zap.String("direction", string(e.key)))
	}
	// Failing units are tried again with repairs: the rest of their group may be there by now.
	if err := e.bring(ctx, slices.Concat(found.repair, found.failing), notBefore, forRepair); err != nil {
		return err
	}
	if len(found.repair) > 0 {
		e.mu.Lock()
		e.announce() // a waiting switch compares these groups at once
		e.mu.Unlock()
	}
	return e.parkFailing(ctx)
}

// beginRounds takes the late sets of all shards. notBefore is the newest applied position, so that
// the comparison sees every applied change.
func (e *Engine) beginRounds() (rounds []round, ids []transform.GroupID, notBefore record.Version) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return nil, nil, notBefore
	}
	// Units of lost shards wait with the new owner.
	maps.DeleteFunc(e.failing, func(id transform.GroupID, _ failure) bool { return !e.isLate(id) })
	for _, s := range e.shards {
		r := round{shard: s, ids: map[transform.GroupID]uint64{}, frozen: e.fenced() && e.seenFences(s)}
		for id, entry := range s.late {
			// The retries of parked groups compare this group. The shard must not wait for it
			// twice.
			if p, parked := e.parked[id]; parked && !p.Differs {
				delete(e.failing, id)
				s.dropLate(id)
				e.announce() // there may be room for more late groups
				continue
			}
			r.ids[id] = entry.seq
			ids = append(ids, id)
		}
		if s.applied.at.At.Compare(notBefore) > 0 {
			notBefore = s.applied.at.At
		}
		if len(r.ids) > 0 {
			rounds = append(rounds, r)
		}
	}
	return rounds, ids, notBefore
}

// findings are the open tasks after a comparison.
type findings struct {
	repair       []transform.GroupID // differ, to be applied again
	failing      []transform.GroupID // cannot be transformed yet, to be tried again
	unrepairable []transform.GroupID // differ after giveUpTries, to be parked
	agreed       []transform.GroupID // parked for a difference that is gone
}

// endRounds removes compared groups from the late sets. If a group differs and its source changed
// since the last comparison, the round drops it: the change has put its own record into the late
// set. Otherwise the members of a busy group would differ in every comparison and be repaired in
// vain. A unit that cannot be transformed is not dropped, since a change of another member does not
// apply it.
func (e *Engine) endRounds(rounds []round, differ map[transform.GroupID]transform.Difference) (found findings) {
	e.mu.Lock()
	defer e.mu.Unlock()
	moved := false
	for _, r := range rounds {
		s := r.shard
		if e.shards[s.lock.Shard] != s {
			continue // the shard was lost during the comparison
		}
		for id, seq := range r.ids {
			entry, left := s.late[id]
			if !left {
				continue
			}
			d, differs := differ[id]
			if entry.seq != seq {
				// Changed again, so the next round compares it. The change takes over the notes
				// from before this round. Otherwise a group that changes faster than a round takes
				// would keep its shard unready forever.
				if entry.noted <= seq && !d.Failed && s.dropNotes(id) {
					moved = true
				}
				continue
			}
			p, parked := e.parked[id]
			if !differs {
				delete(e.failing, id)
				s.dropLate(id)
				s.comparedCount++
				moved = true
				if parked && p.Differs {
					found.agreed = append(found.agreed, id)
				}
				continue
			}
			if parked {
				// The retries of parked groups write and compare this group. Nothing waits for it
				// here.
				delete(e.failing, id)
				s.dropLate(id)
				moved = true
				continue
			}
			if _, failing := e.failing[id]; failing || d.Failed && e.byContent(id) {
				found.failing = append(found.failing, id)
				continue
			}
			// The source changed since the last comparison. That change gets its own late entry.
			if entry.tries > 0 && entry.state != d.Source && !d.Failed && !r.frozen {
				s.dropLate(id)
				moved = true
				continue
			}
			entry.state = d.Source
			// No change is on its way any more, so the first difference calls for a repair.
			if entry.tries++; r.frozen {
				entry.tries = max(entry.tries, recheckTries)
			}
			s.late[id] = entry
			switch {
			case entry.tries >= giveUpTries:
				found.unrepairable = append(found.unrepairable, id)
			case entry.tries >= recheckTries:
				found.repair = append(found.repair, id)
			}
		}
		moved = s.moveCompared() || moved
	}
	if moved {
		e.announce()
	}
	return found
}

// compareGroups compares groups with all workers and returns the different ones.
func (e *Engine) compareGroups(ctx context.Context, ids []transform.GroupID, notBefore record.Version) (map[transform.GroupID]transform.Difference, error) {
	differ := map[transform.GroupID]transform.Difference{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.cfg.Workers)
	for chunk := range slices.Chunk(ids, groupsAtOnce) {
		g.Go(func() error {
			return e.unfenced(ctx, func() error {
				src, err := e.sourceView(ctx, notBefore)
				if err != nil {
					return err
				}
				dst, err := e.targetView(ctx)
				if err != nil {
					return err
				}
				held, err := e.hold(ctx, transform.ReadBytes)
				if err != nil {
					return err
				}
				defer held.release()
				// A retry after a fence repeats the whole chunk. The map absorbs repeated results.
				ds, err := e.Comparer.Groups(ctx, src, dst, chunk)
				mu.Lock()
				defer mu.Unlock()
				for _, d := range ds {
					differ[d.ID] = d
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("compare late changes: %w", err)
	}
	return differ, nil
}
