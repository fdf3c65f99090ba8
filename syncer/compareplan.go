package syncer

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// This file decides when each range is compared; compare.go compares it.

// verifyPlan returns the plan for comparing the target's side, the same for all shards. It is made
// when everything is copied. Ranges cut earlier would be uneven: few of them would receive most of
// the later copies.
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
	kinds := slices.DeleteFunc(slices.Clone(e.Direction.TargetKinds()), func(k record.KindSpec) bool { return !transform.SyncsTo(e.Direction, k.Name) })
	if err := e.cut(ctx, &plan, e.Target, dst, kinds); err != nil {
		return Plan{}, err
	}
	// Two controllers may cut at once. The stored plan is valid for both.
	return e.Journal.CreatePlan(ctx, key, plan)
}

// beginning is where comparisons begin.
type beginning struct {
	plan           Plan // of the target's side; zero if it was not asked for
	source, target record.Position
}

// comparable returns the beginning of a comparison. ok is false until everything is copied and loaders
// are fenced more than the given number of times. planned asks for the plan.
func (e *Engine) comparable(ctx context.Context, more uint64, planned bool) (at beginning, ok bool, err error) {
	if copied, err := e.copiedEverywhere(ctx); err != nil || !copied {
		return at, false, err
	}
	fenced, err := e.loadersFenced(ctx, more)
	if err != nil {
		return at, false, err
	}
	if !fenced {
		// The ranges are cut while the driver sets the fence. It may rename the kinds in between, and
		// the next round, behind the fence, then cuts them.
		if planned {
			if _, err := e.verifyPlan(ctx); err != nil {
				e.Log.Debug("the comparison is planned behind the fence of loaders", zap.Error(err))
			}
		}
		return at, false, nil
	}
	g, asking := errgroup.WithContext(ctx)
	if planned {
		g.Go(func() (err error) {
			if at.plan, err = e.verifyPlan(asking); err != nil {
				err = fmt.Errorf("verify plan: %w", err)
			}
			return err
		})
	}
	// The position of the target precedes all comparisons, so that the stream reports every foreign
	// change from then on.
	g.Go(func() (err error) {
		if at.target, err = e.Target.Position(asking); err != nil {
			err = fmt.Errorf("position of the target: %w", err)
		}
		return err
	})
	// Also taken behind the fence of loaders: see Engine.sourceFloor.
	g.Go(func() (err error) {
		if at.source, err = e.Source.Position(asking); err != nil {
			err = fmt.Errorf("position of the source: %w", err)
		}
		return err
	})
	err = g.Wait()
	return at, err == nil, err
}

// planVerify assigns ranges to shards for comparison once all shards are copied and loaders are
// fenced. All later writes carry guards, so that equal groups stay equal. A shard gets ranges of
// the source, and ranges of the target for kinds whose orphans are not found from the source's
// side.
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
	// The call blocks on the coordination store, so e.mu is released and the shards are checked
	// again below.
	// A kind whose records keep their keys is compared in the ranges of the source.
	searched := slices.ContainsFunc(e.Direction.TargetKinds(), func(k record.KindSpec) bool { return transform.SearchedTo(e.Direction, k.Name) })
	at, ok, err := e.comparable(ctx, 0, searched)
	if err != nil || !ok {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targetStart = at.target.At // reads of the target include everything that was loaded
	e.sourceFloor = at.source.At
	for n, s := range e.shards {
		if !due(s) {
			continue
		}
		strays := slices.DeleteFunc(e.rangesOf(n, at.plan, true), func(t *rangeTask) bool { return !transform.SearchedTo(e.Direction, t.kind) })
		s.verify = append(append([]*rangeTask{}, e.rangesOf(n, e.plan, false)...), strays...)
		s.verified = len(s.verify) == 0
		s.dirty = s.dirty || s.verified
		e.watchFromNow(s, at.target) // the comparison may miss foreign changes from here on
	}
	e.announce()
	return nil
}

// rangesOf returns the comparison tasks of a shard by a plan.
func (e *Engine) rangesOf(shard int, p Plan, target bool) (ts []*rangeTask) {
	p.part(shard, e.cfg.Ring, func(kind string, i int, r record.Range) {
		ts = append(ts, &rangeTask{job: compares, shard: shard, name: rangeName(kind, i), kind: kind, rest: r, target: target})
	})
	return ts
}

// obeyRepair starts a rescan of shards for the latest repair request and reports the shards that
// have finished one, after their checkpoints are stored.
func (e *Engine) obeyRepair(ctx context.Context) error {
	locks := map[int]coord.Condition{}
	e.mu.Lock()
	x := upgradestate.OpenDifferent(e.record)
	if x == nil || x.Repair == "" || x.Version != e.Direction.To() || e.over() {
		e.mu.Unlock()
		return nil
	}
	ask := upgradestate.Repaired{Version: x.Version, ID: x.Repair}
	for n, s := range e.shards {
		switch {
		case s.leaving || len(s.todo) > 0:
		case s.repair != ask.ID:
			s.repair = ask.ID
			s.compareAnew()
			if e.pass != nil {
				delete(e.pass.shards, s) // the running pass compared part of this shard too early
			}
		// An unstored result could be lost with this process.
		case s.complete() && s.stored && slices.Contains(x.Left, n):
			ask.Shards = append(ask.Shards, n)
			locks[n] = s.lock.Condition()
		}
	}
	e.announce()
	e.mu.Unlock()
	slices.Sort(ask.Shards)
	// Chunks keep each transaction below coord.MaxOps.
	for chunk := range slices.Chunk(ask.Shards, reportsAtOnce) {
		var conds []coord.Condition
		for _, n := range chunk {
			conds = append(conds, locks[n])
		}
		if err := e.apply(ctx, upgradestate.Repaired{Version: ask.Version, ID: ask.ID, Shards: chunk}, conds...); err != nil {
			return fmt.Errorf("report repair: %w", err)
		}
	}
	return nil
}

// repairs reports whether a shard is rescanned for a repair request. e.mu is held.
func (e *Engine) repairs(s *shard) bool {
	x := upgradestate.OpenDifferent(e.record)
	return x != nil && x.Repair != "" && s.repair == x.Repair
}
