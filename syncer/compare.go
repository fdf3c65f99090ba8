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

// recheckTries is how often a difference may be seen, while nothing changes in the source,
// before the group is applied anew, and giveUpTries when it is parked: a difference is
// normal while the source changes, and an error when it stays.
const (
	recheckTries = 4
	giveUpTries  = 12
)

// comparePage compares one page of a range. What differs joins the late set, where it
// is compared again until it agrees. It returns how many groups it read.
func (e *Engine) comparePage(ctx context.Context, t *rangeTask) (int, error) {
	compare := e.Comparer.SourcePage
	if t.target {
		compare = e.Comparer.TargetPage
	}
	var page transform.Comparison
	err := e.unfenced(ctx, func() error {
		src, err := e.sourceView(ctx, record.Version{})
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
	if err := e.parkOrphans(ctx, page.Orphans); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.taken, e.busy = false, time.Now()
	s := e.shards[t.shard]
	if s == nil || !slices.Contains(s.verify, t) {
		return page.Compared, nil
	}
	for _, id := range page.Differ {
		s.addDifferent(id)
	}
	s.comparedCount += int64(page.Compared)
	t.rest = page.Next
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

// lateEntry is a group that waits for its second comparison. seq shows whether it
// changed again since a comparison began.
type lateEntry struct {
	seq   uint64
	tries int    // that found it different, with this state of the source
	state uint64 // transform.Difference.Source
	found bool   // by the comparison of a range, not by a change
	noted uint64 // seq when the latest of found and target was noted
	from  place  // where the shard was before it had to be compared
	// target is where the shard was in the target's changes before others were seen to have
	// changed the group there; zero: they were not.
	target record.Position
}

// round is one comparison of a shard's late set: which groups at which seq.
type round struct {
	shard *shard // one that was lost and gained meanwhile is another
	ids   map[transform.GroupID]uint64
	// frozen: the shard had followed the source up to its fence, so that what differs does
	// not go away by itself.
	frozen bool
}

// compareLate compares the groups that changed since their shard's last comparison,
// and moves the compared position to where the earliest is from that is left. Here it turns
// out what has to be parked.
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
	if err := e.bring(ctx, slices.Concat(found.repair, found.failing), notBefore, forRepair); err != nil {
		return err
	}
	if len(found.repair) > 0 {
		e.mu.Lock()
		e.announce() // a switch that waits for these groups compares them at once
		e.mu.Unlock()
	}
	return e.parkFailing(ctx)
}

func (e *Engine) beginRounds() (rounds []round, ids []transform.GroupID, notBefore record.Version) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return nil, nil, notBefore
	}
	maps.DeleteFunc(e.failing, func(id transform.GroupID, _ failure) bool { return !e.isLate(id) }) // of shards that were lost
	for _, s := range e.shards {
		r := round{shard: s, ids: map[transform.GroupID]uint64{}, frozen: e.switching() && e.seenFences(s)}
		for id, entry := range s.late {
			if p, parked := e.parked[id]; parked && !p.Differs {
				delete(e.failing, id)
				s.dropLate(id)
				e.announce() // there may be room for more
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

// findings are what a comparison has left to do.
type findings struct {
	repair       []transform.GroupID
	failing      []transform.GroupID // to be tried again
	unrepairable []transform.GroupID // to be parked
	agreed       []transform.GroupID // parked for a difference that is no longer there
}

// endRounds takes what was compared from the late sets. A group that differs, and whose
// source has changed since the comparison before, is left to that change: its record is
// compared late as well, after it was applied. Otherwise the members of a group that many
// write to would differ each time they are compared, and be repaired in vain. What cannot
// be transformed is not left to it: a change of another member does not apply it.
func (e *Engine) endRounds(rounds []round, differ map[transform.GroupID]transform.Difference) (found findings) {
	e.mu.Lock()
	defer e.mu.Unlock()
	moved := false
	for _, r := range rounds {
		s := r.shard
		if e.shards[s.lock.Shard] != s {
			continue
		}
		for id, seq := range r.ids {
			entry, left := s.late[id]
			if !left {
				continue
			}
			d, differs := differ[id]
			if entry.seq != seq {
				// Changed again: the next round compares it. What was noted before this one is left to
				// that change. Otherwise a group that changes faster than a round ends keeps its shard
				// from being ready for ever.
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
				// It is written and compared again as what is parked is, and nothing waits for it.
				delete(e.failing, id)
				s.dropLate(id)
				moved = true
				continue
			}
			if _, failing := e.failing[id]; failing || d.Failed && e.byContent(id) {
				found.failing = append(found.failing, id)
				continue
			}
			if entry.tries > 0 && entry.state != d.Source && !d.Failed && !r.frozen {
				s.dropLate(id)
				moved = true
				continue
			}
			entry.state = d.Source
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
				release, err := e.hold(ctx, transform.ReadBytes)
				if err != nil {
					return err
				}
				defer release()
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
