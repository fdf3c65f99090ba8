package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
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
			// What others wrote by another transformation is kept out before the plan's start,
			// so that whatever they had read is older.
			if _, err := e.awaitApply(ctx); err != nil {
				return err
			}
			if plan, err = e.makePlan(ctx); err != nil {
				return err
			}
			if plan, err = e.Journal.CreatePlan(ctx, e.key, plan); err != nil {
				return err
			}
		}
		began, err := e.Target.Position(ctx)
		if err != nil {
			return fmt.Errorf("position of the target: %w", err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.plan, e.targetStart = plan, began.At
		e.announce()
		return nil
	})
}

// idle returns when there is something to do. Until then shards that are to leave are
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

// switched is the plan of the reverse sync: the switch has left the namespace that was
// current in sync with the one that is, at a position that it noted. What has been waived
// is in the old namespace alone, and must not be taken for deleted. Records of the old
// namespace that another transformation has made are in sync with nothing: after a
// rollback to correct one they have to be made anew.
func (e *Engine) switched() (Plan, bool) {
	d := e.current()
	last := d.LastSwitch
	if last == nil || d.Epoch != e.cfg.Epoch || last.Snapshot || last.Position == "" || last.To != e.Direction.From() || last.From != e.Direction.To() {
		return Plan{}, false
	}
	if last.Before != "" && last.Before != e.Direction.Hash() {
		e.Log.Info("the transformation is another one than at the latest switch this way: everything is compared", zap.String("version", e.Direction.To()))
		return Plan{}, false
	}
	if e.generation > 0 {
		e.Log.Info("another transformation was in use since the latest switch: everything is compared", zap.String("version", e.Direction.To()))
		return Plan{}, false
	}
	plan := Plan{InSync: true}
	if err := json.Unmarshal([]byte(last.Position), &plan.Start); err != nil || plan.Start.IsZero() {
		e.Log.Warn("position of the latest switch is not readable: everything is compared", zap.String("switch", last.ID))
		return Plan{}, false
	}
	return plan, true
}

func (e *Engine) makePlan(ctx context.Context) (Plan, error) {
	if err := e.keepWaived(ctx); err != nil {
		return Plan{}, err
	}
	if plan, ok := e.switched(); ok {
		var err error
		if plan.Target, err = e.leftAt(ctx); err != nil {
			return Plan{}, err
		}
		listed, err := e.parkAgain(ctx)
		if err != nil || listed {
			return plan, err
		}
		e.Log.Info("more was waived when this direction was last synced than is listed: everything is copied again", zap.String("version", e.Direction.To()))
	}
	if err := e.allKept(ctx); err != nil {
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
	return plan, e.cut(ctx, &plan, e.Source, src, e.syncedKinds())
}

// syncedKinds are the kinds of the source that are synced.
func (e *Engine) syncedKinds() []record.KindSpec {
	return slices.DeleteFunc(slices.Clone(e.Direction.SourceKinds()), func(k record.KindSpec) bool { return !transform.SyncsFrom(e.Direction, k.Name) })
}

// parkAgain parks what was parked and waived when this direction was last synced, before
// the rollback: a plan InSync does not meet what does not change, and a waiver is for one
// switch. What can be migrated by now is applied when parked groups are tried again. It
// reports whether all of it is listed.
func (e *Engine) parkAgain(ctx context.Context) (listed bool, err error) {
	if e.cfg.Epoch < 3 {
		return true, nil
	}
	list, err := e.Journal.Parked(ctx, Key(e.cfg.Epoch-2, e.Direction, e.current().LastSwitch.BeforeGeneration), -1)
	if err != nil {
		return false, fmt.Errorf("list what was waived: %w", err)
	}
	if slices.ContainsFunc(list, standsForOthers) {
		return false, nil
	}
	for _, p := range list {
		if p.Spec < noSpec || p.Kept {
			continue // it is in the target
		}
		// Versions are compared within one epoch only.
		p.Direction, p.Version, p.Waived = e.key, record.Version{}.String(), false
		if err := e.Journal.Park(ctx, p); err != nil {
			return false, fmt.Errorf("park %s/%s again: %w", p.Kind, p.Key, err)
		}
	}
	return true, nil
}

// standsForOthers reports an entry that does not say which groups it stands for.
func standsForOthers(p Parked) bool { return p.Spec == OverflowSpec || p.Spec == UnreadableSpec }

// Left is the direction that the latest switch ended, if what is synced to a version now is the
// rollback of it. (A switch to a snapshot has left everything behind; a new upgrade gives that
// up.)
func Left(d upgradestate.Deployment, to string) (DirectionKey, bool) {
	last := d.LastSwitch
	if last == nil || last.Snapshot || last.To != d.CurrentVersion || last.From != to {
		return "", false
	}
	return KeyOf(d.Epoch-1, last.From, last.To, last.TransformHash, last.Generation), true
}

// left is what was parked there.
func (e *Engine) left(ctx context.Context) ([]Parked, error) {
	d := e.current()
	key, ok := Left(d, e.Direction.To())
	if !ok || d.Epoch != e.cfg.Epoch || d.CurrentVersion != e.Direction.From() {
		return nil, nil
	}
	list, err := e.Journal.Parked(ctx, key, -1)
	if err != nil {
		return nil, fmt.Errorf("list what was waived: %w", err)
	}
	return list, nil
}

// keepWaived keeps what the latest switch left behind by a waiver from being taken for
// deleted wherever everything is compared: for want of a position, or of the history. What
// becomes of such a group in the active namespace still comes over.
func (e *Engine) keepWaived(ctx context.Context) error {
	list, err := e.left(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Spec < 0 || p.Kept || !p.Waived {
			continue // no group of this direction, or not left behind in its target
		}
		p.Error = fmt.Sprintf("kept as it is: it was waived when %s was left for %s", e.Direction.To(), e.Direction.From())
		p.Direction, p.Version, p.Waived, p.Kept = e.key, record.Version{}.String(), true, true
		if err := e.Journal.Park(ctx, p); err != nil {
			return fmt.Errorf("keep %s/%s: %w", p.Kind, p.Key, err)
		}
	}
	return nil
}

// anyUnreadable reports whether there is an entry of a parked group that cannot be read.
func (e *Engine) anyUnreadable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.parked {
		if id.Spec == UnreadableSpec {
			return true
		}
	}
	return false
}

// allKept refuses to compare everything where more was left behind than is listed: nobody
// could distinguish it from what was deleted since.
func (e *Engine) allKept(ctx context.Context) error {
	list, err := e.left(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(list, standsForOthers); i >= 0 {
		if list[i].Spec == UnreadableSpec {
			return &record.UnsupportedError{What: "a comparison of " + e.Direction.From() + " with " + e.Direction.To(),
				Reason: fmt.Sprintf("what was waived when %s was left cannot be read, and would be taken for deleted: %s", e.Direction.To(), list[i].Error)}
		}
		return &record.UnsupportedError{What: "a comparison of " + e.Direction.From() + " with " + e.Direction.To(),
			Reason: fmt.Sprintf("when %s was left, more records of %s were waived than are listed, and they would be taken for deleted: go back to the snapshot, or have another place of %s", e.Direction.To(), list[i].Kind, e.Direction.To())}
	}
	return nil
}
