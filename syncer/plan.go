package syncer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// prepare loads the plan or makes it. The start position is stored with the plan, before the first
// record is copied.
func (e *Engine) prepare(ctx context.Context) error {
	return e.persist(ctx, "plan", func() error {
		plan, found, err := e.Journal.LoadPlan(ctx, e.key)
		if err != nil {
			return err
		}
		if !found {
			// Writers with another transformation are fenced before the plan's start is read. All
			// their reads are older than the start.
			if _, err := e.awaitApply(ctx); err != nil {
				return err
			}
		}
		// A read of the target older than this could miss what an earlier direction left there.
		var began record.Position
		g, asking := errgroup.WithContext(ctx)
		g.Go(func() (err error) {
			if began, err = e.Target.Position(asking); err != nil {
				err = fmt.Errorf("position of the target: %w", err)
			}
			return err
		})
		if !found {
			g.Go(func() (err error) {
				if plan, err = e.makePlan(asking); err != nil {
					return err
				}
				// Another controller's plan may have been first. Then that one counts.
				plan, err = e.Journal.CreatePlan(asking, e.key, plan)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.plan, e.targetStart = plan, began.At
		e.announce()
		return nil
	})
}

// idle returns when the engine has work. Until then it releases shards that other controllers wait
// for.
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

// switched returns the plan of the reverse sync. The switch left the old namespace in sync with the
// active one, at a position that it recorded. Waived records exist in the old namespace alone and
// must not be taken for deleted. If another transformation made the records of the old namespace,
// they are in sync with nothing: after a rollback that corrects a transformation, all records are
// made again.
func (e *Engine) switched() (Plan, bool) {
	d := e.current()
	last := d.LastSwitch
	// The latest switch was not one from this target to this source, or left no position.
	if last == nil || d.Epoch != e.cfg.Epoch || !last.Synced() || last.Position == "" || last.To != e.Direction.From() || last.From != e.Direction.To() {
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
	// Comparing everything is slower but correct.
	if err := json.Unmarshal([]byte(last.Position), &plan.Start); err != nil || plan.Start.IsZero() {
		e.Log.Warn("position of the latest switch is not readable: everything is compared", zap.String("switch", last.ID))
		return Plan{}, false
	}
	return plan, true
}

// makePlan makes the plan of the direction: the reverse sync's after a switch, otherwise a full
// copy.
func (e *Engine) makePlan(ctx context.Context) (Plan, error) {
	// Stored before the plan: a kill in between must not leave a plan without these marks.
	if err := e.keepWaived(ctx); err != nil {
		return Plan{}, err
	}
	if plan, ok := e.switched(); ok {
		var err error
		if plan.Target, plan.Fences, err = e.leftAt(ctx); err != nil {
			return Plan{}, err
		}
		listed, err := e.parkAgain(ctx)
		if err != nil || listed {
			return plan, err
		}
		e.Log.Info("more was waived when this direction was last synced than is listed: everything is copied again", zap.String("version", e.Direction.To()))
	}
	// A full comparison would delete records that were waived and not listed.
	if err := e.allKept(ctx); err != nil {
		return Plan{}, err
	}
	plan := Plan{Ranges: map[string][]record.Range{}, Totals: map[string]int64{}}
	var err error
	// The position comes before the ranges and the copy, so that no change is missed.
	if plan.Start, err = e.Source.Position(ctx); err != nil {
		return Plan{}, fmt.Errorf("start position: %w", err)
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return Plan{}, err
	}
	return plan, e.cut(ctx, &plan, e.Source, src, e.syncedKinds())
}

// syncedKinds returns the source kinds that are synced.
func (e *Engine) syncedKinds() []record.KindSpec {
	return slices.DeleteFunc(slices.Clone(e.Direction.SourceKinds()), func(k record.KindSpec) bool { return !transform.SyncsFrom(e.Direction, k.Name) })
}

// parkAgain parks again the groups that were parked and waived in this direction's last sync,
// before the rollback. A plan InSync does not meet unchanged records, and a waiver is valid for one
// switch. Retries of parked groups apply those that can be migrated now. listed reports whether the
// journal has listed all of them.
func (e *Engine) parkAgain(ctx context.Context) (listed bool, err error) {
	last := e.current().LastSwitch
	// This direction has no earlier epoch.
	if last == nil || last.BeforeEpoch == 0 {
		return true, nil
	}
	list, err := e.Journal.Parked(ctx, Key(last.BeforeEpoch, e.Direction, last.BeforeGeneration), -1)
	if err != nil {
		return false, fmt.Errorf("list waived records: %w", err)
	}
	if slices.ContainsFunc(list, standsForOthers) {
		return false, nil
	}
	for _, p := range list {
		if p.Spec < noSpec || p.Kept {
			continue // the record is in the target
		}
		// Versions are comparable within one epoch only.
		p.Direction, p.Version, p.Waived = e.key, record.Version{}.String(), false
		if err := e.Journal.Park(ctx, p); err != nil {
			return false, fmt.Errorf("park %s/%s again: %w", p.Kind, p.Key, err)
		}
	}
	return true, nil
}

// standsForOthers reports whether an entry stands for groups that it does not name.
func standsForOthers(p Parked) bool { return p.Spec == OverflowSpec || p.Spec == UnreadableSpec }

// Left returns the direction that the latest switch ended, if that switch went from the version to
// to the current version. A sync to that version is then the way back. ok is false for any other
// version. It is also false after a switch to a snapshot, because that switch left all later
// records behind and a new upgrade gives them up. Epochs without a switch may have begun since.
func Left(d upgradestate.Deployment, to string) (DirectionKey, bool) {
	last := d.LastSwitch
	if last == nil || last.Snapshot || last.To != d.CurrentVersion || last.From != to {
		return "", false
	}
	return KeyOf(last.Epoch, last.From, last.To, last.TransformHash, last.Generation), true
}

// leftKey is Left for the engine's direction. ok is also false if the Deployment has moved on: its
// latest switch is then not the one before this engine.
func (e *Engine) leftKey() (key DirectionKey, ok bool) {
	d := e.current()
	if d.Epoch != e.cfg.Epoch || d.CurrentVersion != e.Direction.From() {
		return "", false
	}
	return Left(d, e.Direction.To())
}

// left returns the parked entries of the direction that the latest switch ended.
func (e *Engine) left(ctx context.Context) ([]Parked, error) {
	key, ok := e.leftKey()
	if !ok {
		return nil, nil
	}
	list, err := e.Journal.Parked(ctx, key, -1)
	if err != nil {
		return nil, fmt.Errorf("list waived records: %w", err)
	}
	return list, nil
}

// keepWaived marks groups that the latest switch left behind by a waiver. A whole comparison, for
// lack of a position or of the history, would otherwise take them for deleted. Later changes of
// such a group in the active namespace are still applied.
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

// endWaiver removes the waiver by which a group was kept, once the target follows the group again. A
// later plan of this direction would otherwise keep it again, even if it is deleted in between.
func (e *Engine) endWaiver(ctx context.Context, p Parked) error {
	key, ok := e.leftKey()
	if !ok || !p.Kept {
		return nil
	}
	p.Direction, p.Version = key, latest.String()
	if err := e.Journal.Unpark(ctx, p); err != nil {
		return fmt.Errorf("end the waiver of %s/%s: %w", p.Kind, p.Key, err)
	}
	return nil
}

// latest is not lower than any version. Those of another epoch cannot be compared.
var latest = record.Version(bytes.Repeat([]byte{0xff}, len(record.Version{})))

// anyUnreadable reports whether a parked entry cannot be read.
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

// allKept refuses a whole comparison if more groups were left behind than the journal lists. They
// could not be distinguished from deleted ones.
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
			Reason: fmt.Sprintf("when %s was left, more records of %s were waived than are listed, and they would be taken for deleted: set 'disabled: true' for %[1]s in dbs and then go back with 'rollback --to-snapshot', or have another place of %[1]s", e.Direction.To(), list[i].Kind)}
	}
	return nil
}
