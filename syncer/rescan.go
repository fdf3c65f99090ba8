package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// historyLost means that the changes after a position are no longer available.
type historyLost struct {
	at record.Position
	error
}

func (l *historyLost) Unwrap() error { return l.error }

// lostAt adds the position of the stream to an error for a lost history.
func lostAt(at record.Position, err error) error {
	if !errors.Is(err, record.ErrHistoryLost) {
		return err
	}
	return &historyLost{at, err}
}

// beginAgain makes the shards with lost changes follow the source from its present end. It copies
// nothing again: a rescan compares both sides and repairs.
func (e *Engine) beginAgain(ctx context.Context, lost *historyLost) error {
	e.Log.Error("the change history of the source is lost: what may have changed is compared",
		zap.String("direction", string(e.key)), zap.Error(lost))
	err := e.persist(ctx, "begin again", func() error { return e.reposition(ctx, lost.at) })
	if err != nil {
		return err
	}
	return wait(ctx, e.cfg.Every) // a short history must not cause a busy loop
}

// wait sleeps for a duration or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// reposition stores, for each shard that is no further than lost, that it resumes at the present
// and needs a rescan. It does so before anything is compared or counts as done.
func (e *Engine) reposition(ctx context.Context, lost record.Position) error {
	if err := e.refresh(ctx); err != nil {
		return err
	}
	if err := e.sameSource(ctx); err != nil {
		return err
	}
	// A restored source has another history. The target may then hold the only copy of the changes
	// that the restore has undone, so an operator decides before anything is compared.
	if err := e.lives(ctx); err != nil {
		return err
	}
	var behind []int
	e.mu.Lock()
	over, up := e.over(), e.record.Upgrade
	for n, s := range e.shards {
		if s.followed && s.applied.at.Compare(lost) <= 0 {
			s.rescan = !over // at once: a shard that needs a rescan does not report
			behind = append(behind, n)
		}
	}
	e.announce()
	e.mu.Unlock()
	slices.Sort(behind)
	if over {
		// The direction is over. The stream only watches for deletes that pass the fence.
		e.Log.Warn("deletes that passed the fence while the history was lost are not counted")
	}
	// A drained shard stays reported: it has followed the source up to its fence.
	if up != nil && up.State == upgradestate.InitialSyncing && len(behind) > 0 {
		if err := e.apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: behind}); err != nil {
			return fmt.Errorf("withdraw report: %w", err)
		}
	}
	// The withdrawal comes first, so that no switch starts while a shard is behind.
	now, err := e.Source.Position(ctx)
	if err != nil {
		return fmt.Errorf("position: %w", err)
	}
	// Read after the position, so that later fences are announced after it.
	if err := e.refresh(ctx); err != nil {
		return err
	}
	for _, n := range behind {
		if err := e.storeBeginning(ctx, n, now, !over); err != nil {
			return err
		}
	}
	return nil
}

// storeBeginning stores a new position of one shard under its lock, and then moves the shard to it.
func (e *Engine) storeBeginning(ctx context.Context, n int, now record.Position, rescan bool) error {
	// A checkpoint made earlier must not overwrite this one.
	if err := e.saving.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.saving.Release(1)
	e.mu.Lock()
	s := e.shards[n]
	if s == nil {
		e.mu.Unlock()
		return nil
	}
	// Seen fences stay seen. A fence within the lost history is never seen, so that no shard drains
	// to it.
	at := place{at: now, markers: s.applied.markers, lateDeletes: s.applied.lateDeletes}
	c := s.checkpoint()
	c.Position, c.Markers, c.LateDeletes = at.at, at.markers, at.lateDeletes
	c.Verified, c.Rescan = c.Verified && !rescan, rescan
	// Loaders may hold reads from before the loss. The rescan waits for a later fence.
	if seen, ok := upgradestate.ImagesOf(e.record, e.Direction.To()); ok {
		c.Fences = seen.Fences
	}
	e.mu.Unlock()
	err := e.Journal.SaveCheckpoints(ctx, e.key, map[int]Checkpoint{n: c}, s.lock.Condition())
	if errors.Is(err, coord.ErrConflict) {
		return e.lostOwnership(err) // the next owner does the same
	}
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shards[n] != s {
		return nil
	}
	s.applied, s.compared = at, at
	s.inSync, s.behind = time.Time{}, time.Time{}
	s.rescan, s.stored, s.fences = rescan, !rescan && s.stored, c.Fences
	for id := range s.late {
		s.addDifferent(id) // the position no longer shows that they were not compared
	}
	if e.pass != nil {
		delete(e.pass.shards, s) // the pass compared part of this shard too early
	}
	e.announce()
	return nil
}

// sameSource returns a permanent error if a source collection is not the one that was copied. No
// comparison can show which records were meant to be deleted.
func (e *Engine) sameSource(ctx context.Context) error {
	toks, err := e.sourceTokens(ctx)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	for kind, places := range upgradestate.EnginePlaces(e.current(), e.Direction.From()) {
		// toks is nil if a collection was not found. The record's identity then shows which one it
		// was.
		id := places[0].ID
		if tok, ok := toks[kind]; ok {
			id = tok.ID
		}
		if id == "" {
			continue
		}
		_, err := e.Source.Locate(ctx, id)
		if source, _ := e.current().Namespace(e.Direction.From()); errors.Is(err, record.ErrNotFound) {
			// An application may replace its own collection. The engine then waits for the new one.
			if k, ok := source.Kind(kind); ok && k.Fixed && e.Replaced != nil {
				return &record.ReplacedError{Kind: kind, What: fmt.Sprintf("%s of %s (%s) is gone", kind, e.Direction.From(), id)}
			}
			return &record.UnsupportedError{What: fmt.Sprintf("collection %s (identity %s) of %s", kind, id, e.Direction.From()),
				Reason: "it was dropped; a collection recreated under its name is another collection: restore it, or run 'dbcontroller recover'"}
		}
		if err != nil {
			return fmt.Errorf("locate %s: %w", kind, err)
		}
	}
	return nil
}

// pass is one rescan for the shards of this controller that need it. The lost changes may concern
// any of their groups, and so lie in any range.
type pass struct {
	shards map[*shard]bool // shards to compare; a lost or restarted shard is removed
	floor  record.Version  // reads of the source are not older
	tasks  []*rangeTask    // remaining ranges of both sides

	compared, repaired int
}

// planRescan starts a pass if shards need one and none runs. It waits until all controllers have
// copied everything, since missing records would otherwise seem to differ.
func (e *Engine) planRescan(ctx context.Context) error {
	if !e.needsPass() {
		return nil
	}
	at, ok, err := e.comparable(ctx, e.fencesBefore(), true)
	if err != nil || !ok {
		return err
	}
	if e.anyUnreadable() {
		// The unreadable entry may mark a record that is kept although only the target has it.
		// Without its mark the pass would delete that record.
		if err := e.keepWaived(ctx); err != nil {
			return err
		}
		if err := e.refreshParked(ctx); err != nil {
			return err
		}
	}
	if err := e.allKept(ctx); err != nil {
		return err
	}
	source, err := e.sourcePlan(ctx)
	if err != nil {
		return fmt.Errorf("rescan plan: %w", err)
	}
	// No lock is held during these calls. The shards are checked again below.
	present, err := e.Source.Position(ctx)
	if err != nil {
		return fmt.Errorf("position: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// Reads of the target include foreign writes made while the history was lost.
	e.targetStart = at.target.At
	// The floor is not older than any guard in the target, so that a repair overwrites foreign
	// changes.
	p := &pass{shards: map[*shard]bool{}, floor: present.At}
	for _, s := range e.shards {
		if !s.rescan || s.leaving || !upgradestate.LoadersFenced(e.record, e.Direction.To(), s.fences) {
			continue
		}
		p.shards[s] = true
		if s.watched.IsZero() {
			e.watchFromNow(s, at.target)
		}
		// Nor older than the new beginning of any shard, where its changes are followed again.
		if s.compared.at.At.Compare(p.floor) > 0 {
			p.floor = s.compared.at.At
		}
	}
	if len(p.shards) == 0 {
		return nil
	}
	// All ranges, since groups of a shard lie in the ranges of every shard.
	for n := range e.cfg.Ring {
		p.tasks = append(append(p.tasks, e.rangesOf(n, source, false)...), e.rangesOf(n, at.plan, true)...)
	}
	for _, t := range p.tasks {
		t.job, t.shard = rescans, -1 // a task belongs to no shard
	}
	e.pass = p
	e.endPass() // there may be no ranges at all
	e.announce()
	return nil
}

// fencesBefore returns the highest number of loader fences at the start of a rescan, over the
// shards that wait for a pass.
func (e *Engine) fencesBefore() (most uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		if s.rescan && !s.leaving {
			most = max(most, s.fences)
		}
	}
	return most
}

// needsPass reports whether shards wait for a pass. It gives up a running pass without shards.
func (e *Engine) needsPass() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pass; p != nil {
		for s := range p.shards {
			if e.shards[s.lock.Shard] != s || s.leaving {
				delete(p.shards, s)
			}
		}
		if len(p.shards) > 0 {
			return false
		}
		e.pass = nil
	}
	for _, s := range e.shards {
		if s.rescan && !s.leaving {
			return true
		}
	}
	return false
}

// sourcePlan returns the plan for comparing the source's side. A rollback copies nothing, so its
// ranges are cut when first needed.
func (e *Engine) sourcePlan(ctx context.Context) (Plan, error) {
	if !e.plan.InSync {
		return e.plan, nil
	}
	key := e.key + "-rescan"
	plan, found, err := e.Journal.LoadPlan(ctx, key)
	if err != nil || found {
		return plan, err
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return Plan{}, err
	}
	plan = Plan{Start: e.plan.Start, Ranges: map[string][]record.Range{}}
	if err := e.cut(ctx, &plan, e.Source, src, e.syncedKinds()); err != nil {
		return Plan{}, err
	}
	return e.Journal.CreatePlan(ctx, key, plan)
}

// endPass ends a pass without remaining tasks. e.mu is held.
func (e *Engine) endPass() {
	p := e.pass
	if p == nil || len(p.tasks) > 0 {
		return
	}
	e.pass = nil
	for s := range p.shards {
		s.rescan, s.rescanned, s.dirty = false, true, true
		if len(p.shards) == e.cfg.Ring { // then the pass has compared every group in every range
			s.verified, s.verify = true, nil
		}
	}
	e.Log.Info("what may have changed while the history was lost is compared", zap.String("direction", string(e.key)),
		zap.Int("shards", len(p.shards)), zap.Int("groups", p.compared), zap.Int("repaired", p.repaired))
}

// rescanWaits returns a text for the state of a shard's rescan. e.mu is held.
func (e *Engine) rescanWaits(s *shard) string {
	why := "rescan after the change history was lost: "
	if e.repairs(s) {
		why = "repair of what 'verify' found: "
	}
	if e.switching() {
		return why + "this switch cannot end, it aborts by its deadline"
	}
	if e.pass == nil || !e.pass.shards[s] {
		return why + "to begin when all shards are copied"
	}
	return why + fmt.Sprintf("comparison of %d ranges", len(e.pass.tasks))
}
