package syncer

import (
	"context"
	"encoding/json"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// prepare makes or loads the plan. The start position is stored with it, before any
// record is copied.
func (e *Engine) prepare(ctx context.Context) error {
	if err := e.idle(ctx); err != nil {
		return err
	}
	return e.persist(ctx, "plan", func() error {
		plan, found, err := e.Journal.LoadPlan(ctx, e.key)
		if err != nil {
			return err
		}
		if !found {
			if plan, err = e.makePlan(ctx); err != nil {
				return err
			}
			if plan, err = e.Journal.CreatePlan(ctx, e.key, plan); err != nil {
				return err
			}
		}
		e.mu.Lock()
		e.plan = plan
		e.mu.Unlock()
		return nil
	})
}

// idle returns when there is something to do. Until then shards that shall leave are
// handed over: other controllers would otherwise wait for them.
func (e *Engine) idle(ctx context.Context) error {
	for {
		for _, n := range e.Ownership.Leaving() {
			if err := e.Ownership.Release(ctx, n); err != nil {
				return fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		e.mu.Lock()
		work, news := e.cfg.Copy || e.record.Upgrade != nil, e.news
		e.mu.Unlock()
		if work {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-e.Ownership.Changes():
		}
	}
}

// switched is the plan of the way back: the switch has left the namespace that was
// current level with the one that is, at a position that it noted. What has been waived
// is in the old namespace alone, and must not be taken for deleted.
func (e *Engine) switched() (Plan, bool) {
	d := e.current()
	last := d.LastSwitch
	if last == nil || d.Epoch != e.cfg.Epoch || last.Position == "" || last.To != e.Direction.From() || last.From != e.Direction.To() {
		return Plan{}, false
	}
	plan := Plan{Level: true}
	if err := json.Unmarshal([]byte(last.Position), &plan.Start); err != nil || plan.Start.IsZero() {
		e.Log.Warn("position of the latest switch is not readable: everything is compared", zap.String("switch", last.ID))
		return Plan{}, false
	}
	return plan, true
}

func (e *Engine) makePlan(ctx context.Context) (Plan, error) {
	if plan, ok := e.switched(); ok {
		return plan, nil
	}
	plan := Plan{Ranges: map[string][]record.Range{}, Totals: map[string]int64{}}
	var err error
	if plan.Start, err = e.Source.Position(ctx); err != nil {
		return Plan{}, fmt.Errorf("start position: %w", err)
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return Plan{}, err
	}
	for _, k := range e.Direction.SourceKinds() {
		if !transform.SyncsFrom(e.Direction, k.Name) {
			continue
		}
		if plan.Ranges[k.Name], err = e.Source.Split(ctx, src[k.Name], e.cfg.Ring); err != nil {
			return Plan{}, fmt.Errorf("split %s: %w", k.Name, err)
		}
		info, err := e.Source.Describe(ctx, k, src[k.Name].Name)
		if err != nil {
			return Plan{}, fmt.Errorf("describe %s: %w", k.Name, err)
		}
		plan.Totals[k.Name] = info.Count
	}
	return plan, nil
}
