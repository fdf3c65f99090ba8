package syncer

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file decides when which range is compared; compare.go compares them.

// verifyPlan is the plan by which the target's side is compared; its ranges are cut when
// everything is copied and then stand for all shards. Cut earlier, most of what is copied
// afterwards would fall into few of them, and to one worker.
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
	return e.Journal.CreatePlan(ctx, key, plan)
}

// comparable returns the plan of the target's side, and a place in the target's changes, when everything is copied and loaders are fenced more often than so
// many times. Until then ok is false.
func (e *Engine) comparable(ctx context.Context, more uint64) (plan Plan, now record.Position, ok bool, err error) {
	if copied, err := e.copiedEverywhere(ctx); err != nil || !copied {
		return plan, now, false, err
	}
	if fenced, err := e.loadersFenced(ctx, more); err != nil || !fenced {
		return plan, now, false, err
	}
	if plan, err = e.verifyPlan(ctx); err != nil {
		return plan, now, false, fmt.Errorf("verify plan: %w", err)
	}
	at, err := e.Target.Position(ctx)
	if err != nil {
		return plan, now, false, fmt.Errorf("position of the target: %w", err)
	}
	return plan, at, true, nil
}

// planVerify gives shards their ranges to compare, of the source and of the target in which
// strays are not found with the former, when all shards are copied and nobody can load into the
// target any longer: what is written from then on is written under guards, so that what agrees
// stays so.
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
	plan, now, ok, err := e.comparable(ctx, 0)
	if err != nil || !ok {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targetStart = now.At // all that was loaded is in sight
	for n, s := range e.shards {
		if !due(s) {
			continue
		}
		strays := slices.DeleteFunc(e.rangesOf(n, plan, true), func(t *rangeTask) bool { return !transform.SearchedTo(e.Direction, t.kind) })
		s.verify = append(append([]*rangeTask{}, e.rangesOf(n, e.plan, false)...), strays...)
		s.verified = len(s.verify) == 0
		s.dirty = s.dirty || s.verified
		e.watchFromNow(s, now) // what others change from here on, the comparison may miss
	}
	e.announce()
	return nil
}

func (e *Engine) rangesOf(shard int, p Plan, target bool) (ts []*rangeTask) {
	p.part(shard, e.cfg.Ring, func(kind string, i int, r record.Range) {
		ts = append(ts, &rangeTask{job: compares, shard: shard, name: rangeName(kind, i), kind: kind, rest: r, target: target})
	})
	return ts
}
