package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// settleTries is how often a difference may be seen before the group is brought over
// anew, and giveUpTries when it is parked: a difference is normal while the source
// changes, and an error when it stays.
const (
	settleTries = 4
	giveUpTries = 12
)

// verifyPlan is the plan by which the target's side is compared; its ranges are cut when
// the first shard needs them and then stand for all.
func (e *Engine) verifyPlan(ctx context.Context) (Plan, error) {
	key := e.key + "-verify"
	plan, found, err := e.Journal.LoadPlan(ctx, key)
	if err != nil || found {
		return plan, err
	}
	dst, err := e.targetTokens(ctx)
	if err != nil {
		return Plan{}, err
	}
	plan = Plan{Ranges: map[string][]record.Range{}}
	for _, k := range e.Direction.TargetKinds() {
		if !transform.SyncsTo(e.Direction, k.Name) {
			continue
		}
		if plan.Ranges[k.Name], err = e.Target.Split(ctx, dst[k.Name], e.cfg.Ring); err != nil {
			return Plan{}, fmt.Errorf("split %s: %w", k.Name, err)
		}
	}
	return e.Journal.CreatePlan(ctx, key, plan)
}

// planVerify gives shards that are copied their ranges to compare, source's and
// target's.
func (e *Engine) planVerify(ctx context.Context) error {
	due := func(s *shard) bool {
		return len(s.todo) == 0 && !s.verified && !s.rescan && s.verify == nil && !s.leaving
	}
	e.mu.Lock()
	any := false
	for _, s := range e.shards {
		any = any || due(s)
	}
	e.mu.Unlock()
	if !any {
		return nil
	}
	if e.lineage {
		if copied, err := e.copiedEverywhere(ctx); err != nil || !copied {
			return err
		}
	}
	plan, err := e.verifyPlan(ctx)
	if err != nil {
		return fmt.Errorf("verify plan: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, s := range e.shards {
		if !due(s) {
			continue
		}
		s.verify = append(e.rangesOf(n, e.plan, false), e.rangesOf(n, plan, true)...)
		s.verified = len(s.verify) == 0
		s.dirty = s.dirty || s.verified
	}
	e.announce()
	return nil
}

func (e *Engine) rangesOf(shard int, p Plan, target bool) (ts []*rangeTask) {
	for kind, ranges := range p.Ranges {
		for i, r := range ranges {
			if i%e.cfg.Ring == shard {
				ts = append(ts, &rangeTask{job: compares, shard: shard, name: rangeName(kind, i), kind: kind, rest: r, target: target})
			}
		}
	}
	return ts
}

// comparePage compares one page of a range. What differs joins the late set, where it
// is compared again until it settles. It tells how many groups it read.
func (e *Engine) comparePage(ctx context.Context, t *rangeTask) (int, error) {
	compare := e.Comparer.SourcePage
	if t.target {
		compare = e.Comparer.TargetPage
	}
	var page transform.Comparison
	err := e.unfenced(ctx, func() error {
		src, err := e.sourceTokens(ctx)
		if err != nil {
			return err
		}
		dst, err := e.targetTokens(ctx)
		if err != nil {
			return err
		}
		page, err = compare(ctx, src, dst, t.kind, t.rest, e.cfg.Page)
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := e.parkStrays(ctx, page.Strays); err != nil {
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
			e.Log.Info("shard is compared", zap.Int("shard", t.shard), zap.Int64("groups", s.comparedCount))
		}
	}
	e.announce()
	return page.Compared, nil
}

// lateEntry is a group that waits for its second comparison. seq tells whether it
// changed again since a comparison began.
type lateEntry struct {
	seq   uint64
	tries int
	found bool // by the comparison of a range, not by a change
}

// round is one comparison of a shard's late set: up to which position, and which groups
// at which seq.
type round struct {
	shard *shard // one that was lost and gained meanwhile is another
	upTo  place
	ids   map[transform.GroupID]uint64
	// frozen: the shard had followed the source up to its fence, so that what differs does
	// not settle by itself.
	frozen bool
}

// compareLate compares the groups that changed since their shard's last comparison,
// and moves the compared position to where the shard was when it began.
func (e *Engine) compareLate(ctx context.Context) error {
	rounds, ids, notBefore := e.beginRounds()
	if len(rounds) == 0 {
		return nil
	}
	differ, err := e.compareGroups(ctx, ids, notBefore)
	if err != nil {
		return err
	}
	repair, hopeless := e.endRounds(rounds, differ)
	for _, id := range hopeless {
		if err := e.park(ctx, id, record.Version{}, errors.New("source and target differ after repair: is the transformer deterministic?")); err != nil {
			return err
		}
	}
	if len(repair) == 0 {
		return nil
	}
	e.Log.Warn("groups differ and are brought over again", zap.Int("groups", len(repair)),
		zap.String("direction", string(e.key)))
	if err := e.syncGroups(ctx, repair, notBefore); err != nil {
		return err
	}
	e.mu.Lock()
	e.announce() // a switch that waits for these groups compares them at once
	e.mu.Unlock()
	return nil
}

func (e *Engine) beginRounds() (rounds []round, ids []transform.GroupID, notBefore record.Version) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return nil, nil, notBefore
	}
	for _, s := range e.shards {
		r := round{shard: s, upTo: s.applied, ids: map[transform.GroupID]uint64{}, frozen: e.switching() && e.seenFences(s)}
		for id, entry := range s.late {
			if _, parked := e.parked[id]; parked {
				s.dropLate(id)
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

func (e *Engine) endRounds(rounds []round, differ map[transform.GroupID]bool) (repair, hopeless []transform.GroupID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	moved := false
	for _, r := range rounds {
		s := r.shard
		if e.shards[s.lock.Shard] != s {
			continue
		}
		settled := true
		for id, seq := range r.ids {
			entry, left := s.late[id]
			if !left || entry.seq != seq {
				continue // changed again: the next round compares it
			}
			if !differ[id] {
				s.dropLate(id)
				s.comparedCount++
				moved = true
				continue
			}
			settled = false
			if entry.tries++; r.frozen {
				entry.tries = max(entry.tries, settleTries)
			}
			s.late[id] = entry
			switch {
			case entry.tries >= giveUpTries:
				hopeless = append(hopeless, id)
			case entry.tries >= settleTries:
				repair = append(repair, id)
				if entry.tries == settleTries {
					s.mismatched++
				}
			}
		}
		if settled && r.upTo.at.Compare(s.compared.at) >= 0 { // a rescan begins further on
			s.compared = r.upTo
			s.dirty, moved = true, true
		}
	}
	if moved {
		e.announce()
	}
	return repair, hopeless
}

func (e *Engine) compareGroups(ctx context.Context, ids []transform.GroupID, notBefore record.Version) (map[transform.GroupID]bool, error) {
	differ := map[transform.GroupID]bool{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.cfg.Workers)
	for chunk := range slices.Chunk(ids, groupsAtOnce) {
		g.Go(func() error {
			return e.unfenced(ctx, func() error {
				src, err := e.sourceTokens(ctx)
				if err != nil {
					return err
				}
				dst, err := e.targetTokens(ctx)
				if err != nil {
					return err
				}
				ds, err := e.Comparer.Groups(ctx, src, dst, chunk, notBefore)
				mu.Lock()
				defer mu.Unlock()
				for _, id := range ds {
					differ[id] = true
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
