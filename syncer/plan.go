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
// is in the old namespace alone, and must not be taken for deleted. Records of the old
// namespace that another transformation has made are level with nothing: whoever went
// back to correct one wants them made anew.
func (e *Engine) switched() (Plan, bool) {
	d := e.current()
	last := d.LastSwitch
	if last == nil || d.Epoch != e.cfg.Epoch || last.Position == "" || last.To != e.Direction.From() || last.From != e.Direction.To() {
		return Plan{}, false
	}
	if last.Before != "" && last.Before != e.Direction.Hash() {
		e.Log.Info("the transformation is another one than at the latest switch this way: everything is compared", zap.String("version", e.Direction.To()))
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
		return plan, e.parkAgain(ctx)
	}
	if err := e.keepWaived(ctx); err != nil {
		return Plan{}, err
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

// parkAgain parks what was parked and waived when this direction was last synced, before
// the way back: a Level plan does not meet what does not change, and a waiver is for one
// switch. What can be brought over by now is so when parked groups are tried again.
func (e *Engine) parkAgain(ctx context.Context) error {
	if e.cfg.Epoch < 3 {
		return nil
	}
	list, err := e.Journal.Parked(ctx, Key(e.cfg.Epoch-2, e.Direction), -1)
	if err != nil {
		return fmt.Errorf("list what was waived: %w", err)
	}
	for _, p := range list {
		if p.Spec < noSpec {
			continue // stands for others, and never was waived
		}
		// Versions are compared within one epoch only.
		p.Direction, p.Version, p.Waived = e.key, record.Version{}.String(), false
		if err := e.Journal.Park(ctx, p); err != nil {
			return fmt.Errorf("park %s/%s again: %w", p.Kind, p.Key, err)
		}
	}
	return nil
}

// keepWaived keeps what the latest switch left behind by a waiver from being taken for
// deleted where, for want of a position, everything is compared: parked groups are not. What
// becomes of such a group in the active namespace still comes over.
func (e *Engine) keepWaived(ctx context.Context) error {
	d := e.current()
	last := d.LastSwitch
	if last == nil || d.Epoch != e.cfg.Epoch || last.To != e.Direction.From() || last.From != e.Direction.To() {
		return nil
	}
	ended := KeyOf(d.Epoch-1, last.From, last.To, last.TransformHash)
	list, err := e.Journal.Parked(ctx, ended, -1)
	if err != nil {
		return fmt.Errorf("list what was waived: %w", err)
	}
	for _, p := range list {
		if p.Spec < 0 {
			continue // no group of this direction
		}
		p.Direction, p.Version, p.Waived = e.key, record.Version{}.String(), true
		p.Error = fmt.Sprintf("kept as it is: it was waived when %s was left for %s", last.From, last.To)
		if err := e.Journal.Park(ctx, p); err != nil {
			return fmt.Errorf("keep %s/%s: %w", p.Kind, p.Key, err)
		}
	}
	return nil
}
