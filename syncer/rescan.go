package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// historyLost means that the changes after a place are no longer to be had.
type historyLost struct {
	at record.Position
	error
}

func (l *historyLost) Unwrap() error { return l.error }

// lostAt notes the place of a stream that ended because the history was lost.
func lostAt(at record.Position, err error) error {
	if !errors.Is(err, record.ErrHistoryLost) {
		return err
	}
	return &historyLost{at, err}
}

// beginAgain has the shards whose changes are lost follow the source from its present end.
// What was copied is not copied again: it is compared from both sides and repaired.
func (e *Engine) beginAgain(ctx context.Context, lost *historyLost) error {
	e.Log.Error("the change history of the source is lost: what may have changed is compared",
		zap.String("direction", string(e.key)), zap.Error(lost))
	err := e.persist(ctx, "begin again", func() error { return e.reposition(ctx, lost.at) })
	if err != nil {
		return err
	}
	return wait(ctx, e.cfg.Every) // a history that does not last is not asked for without rest
}

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

// reposition stores, for the shards that are no further than lost, that they begin again
// at the present, before anything is compared or counts as done.
func (e *Engine) reposition(ctx context.Context, lost record.Position) error {
	if err := e.refresh(ctx); err != nil {
		return err
	}
	if err := e.sameSource(ctx); err != nil {
		return err
	}
	// The history of a source that was restored is another one. What the target has is then the
	// only copy of what the restore has undone: nothing is compared before a person has decided.
	if err := e.lives(ctx); err != nil {
		return err
	}
	var behind []int
	e.mu.Lock()
	over, up := e.over(), e.record.Upgrade
	for n, s := range e.shards {
		if s.followed && s.applied.at.Compare(lost) <= 0 {
			s.rescan = !over // at once: a shard that is not caught up does not report
			behind = append(behind, n)
		}
	}
	e.announce()
	e.mu.Unlock()
	slices.Sort(behind)
	if over {
		// The direction's work is done; only deletes that pass the fence are watched.
		e.Log.Warn("deletes that passed the fence while the history was lost are not known: compare the two versions with 'verify'")
	}
	// What has drained stays: it had followed the source up to its fence.
	if up != nil && up.State == upgradestate.InitialSyncing && len(behind) > 0 {
		if err := e.apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: behind}); err != nil {
			return fmt.Errorf("withdraw report: %w", err)
		}
	}
	now, err := e.Source.Position(ctx)
	if err != nil {
		return fmt.Errorf("position: %w", err)
	}
	// Read after the position: a fence beyond these is announced after it.
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

// storeBeginning moves one shard to a place, once that is stored under its lock.
func (e *Engine) storeBeginning(ctx context.Context, n int, now record.Position, rescan bool) error {
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
	// Fences that were met before stay met; one that lies in what was lost is never met, so
	// that no shard is drained to it.
	at := place{at: now, markers: s.applied.markers, lateDeletes: s.applied.lateDeletes}
	c := s.checkpoint()
	c.Position, c.Markers, c.LateDeletes = at.at, at.markers, at.lateDeletes
	c.Verified, c.Rescan = c.Verified && !rescan, rescan
	if seen, ok := upgradestate.ImagesOf(e.record, e.Direction.To()); ok {
		c.Fences = seen.Fences
	}
	e.mu.Unlock()
	err := e.Journal.SaveCheckpoints(ctx, e.key, map[int]Checkpoint{n: c}, s.lock.Condition())
	if errors.Is(err, coord.ErrConflict) {
		return e.lostOwnership(err) // its next owner does the same
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
		delete(e.pass.shards, s) // what it has compared of this shard was too early
	}
	e.announce()
	return nil
}

// sameSource refuses to go on with a source whose collections are no longer those that
// were copied: no comparison can show what was meant to be deleted.
func (e *Engine) sameSource(ctx context.Context) error {
	toks, err := e.sourceTokens(ctx)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	for kind, places := range upgradestate.EnginePlaces(e.current(), e.Direction.From()) {
		id := places[0].ID
		if tok, ok := toks[kind]; ok {
			id = tok.ID
		}
		if id == "" {
			continue
		}
		_, err := e.Source.Locate(ctx, id)
		if source, _ := e.current().Namespace(e.Direction.From()); errors.Is(err, record.ErrNotFound) {
			if k, ok := source.Kind(kind); ok && k.Fixed && e.Replaced != nil {
				return &record.ReplacedError{Kind: kind, What: fmt.Sprintf("%s of %s (%s) is gone", kind, e.Direction.From(), id)}
			}
			return &record.UnsupportedError{What: fmt.Sprintf("collection %s (identity %s) of %s", kind, id, e.Direction.From()),
				Reason: "it was dropped, and one made anew under its name is another one: put it back, or run 'dbcontroller recover'"}
		}
		if err != nil {
			return fmt.Errorf("locate %s: %w", kind, err)
		}
	}
	return nil
}

// pass is one comparison of everything for the shards of this controller that begin again.
// The changes that were lost may be of any group of theirs, and so in any range.
type pass struct {
	shards map[*shard]bool // those whose groups it compares; one that is lost, or begins again, leaves it
	floor  record.Version  // what it reads of the source is not older
	tasks  []*rangeTask

	compared, repaired int
}

// planRescan begins a pass when shards need one and none runs. Until all is copied, on
// every controller, what is not there yet would seem to differ.
func (e *Engine) planRescan(ctx context.Context) error {
	if !e.needsPass() {
		return nil
	}
	target, now, ok, err := e.comparable(ctx, e.fencesBefore())
	if err != nil || !ok {
		return err
	}
	if e.anyUnreadable() {
		// It may be of a record that is kept although only the target has it. Without its mark the
		// pass would take that for deleted.
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
	present, err := e.Source.Position(ctx)
	if err != nil {
		return fmt.Errorf("position: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targetStart = now.At // what others wrote while the history was lost is in sight
	// Not older than any guard of the target: what somebody changed there is repaired over it.
	p := &pass{shards: map[*shard]bool{}, floor: present.At}
	for _, s := range e.shards {
		if !s.rescan || s.leaving || !upgradestate.LoadersFenced(e.record, e.Direction.To(), s.fences) {
			continue
		}
		p.shards[s] = true
		if s.watched.IsZero() {
			e.watchFromNow(s, now)
		}
		if s.compared.at.At.Compare(p.floor) > 0 {
			p.floor = s.compared.at.At
		}
	}
	if len(p.shards) == 0 {
		return nil
	}
	for n := range e.cfg.Ring {
		p.tasks = append(append(p.tasks, e.rangesOf(n, source, false)...), e.rangesOf(n, target, true)...)
	}
	for _, t := range p.tasks {
		t.job, t.shard = rescans, -1
	}
	e.pass = p
	e.endPass()
	e.announce()
	return nil
}

// fencesBefore is how many fences of loaders there were when the latest of the shards that wait
// for a pass began again.
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

// needsPass reports whether shards wait for a pass. One whose shards are all gone is
// given up.
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

// sourcePlan is the plan by which the source's side is compared. The rollback from a
// switch copies nothing; its ranges are cut when they are needed first.
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

// endPass ends a pass that has compared everything. e.mu is held.
func (e *Engine) endPass() {
	p := e.pass
	if p == nil || len(p.tasks) > 0 {
		return
	}
	e.pass = nil
	for s := range p.shards {
		s.rescan, s.rescanned, s.dirty = false, true, true
		if len(p.shards) == e.cfg.Ring { // then every group was compared, in every range
			s.verified, s.verify = true, nil
		}
	}
	e.Log.Info("what may have changed while the history was lost is compared", zap.String("direction", string(e.key)),
		zap.Int("shards", len(p.shards)), zap.Int("groups", p.compared), zap.Int("repaired", p.repaired))
}

// rescanWaits returns what a shard that begins again waits for. e.mu is held.
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
