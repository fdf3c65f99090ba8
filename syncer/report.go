package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// housekeep does the periodic work: plans, comparisons and reports. During a switch it runs at each
// change of state and does only the work that the switch waits for.
func (e *Engine) housekeep(ctx context.Context, parkedWatched bool) error {
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	for {
		e.mu.Lock()
		news, switching, replaced := e.news, e.switching(), e.replaced != ""
		e.mu.Unlock()
		var err error
		if replaced {
			err, news = e.reportReady(ctx), nil // nothing of the source can be read
		} else if switching {
			err = e.serveSwitch(ctx)
		} else {
			err = e.serveSync(ctx, parkedWatched)
			// Every page and batch changes the state. Outside of a switch the tick is soon enough.
			news = nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, errOver) {
			// An immediate retry could spin, so the next one waits for the tick.
			e.failed("housekeeping", err)
			news = nil
			if err := e.refresh(ctx); err != nil {
				e.Log.Debug("refresh", zap.Error(err))
			}
		} else {
			e.recovered("housekeeping")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-news:
		case <-e.wake:
		}
	}
}

// switching reports whether the upgrade is in the phase SWITCHING. e.mu is held.
func (e *Engine) switching() bool {
	u := e.record.Upgrade
	return !e.over() && u != nil && u.State == upgradestate.Switching
}

// serveSync runs one round of housekeeping outside of a switch.
func (e *Engine) serveSync(ctx context.Context, parkedWatched bool) error {
	// First, since every later step depends on the parked entries.
	if e.parkedNews.Swap(false) || !parkedWatched {
		if err := e.refreshParked(ctx); err != nil {
			e.parkedNews.Store(true)
			return err
		}
	}
	if err := e.retryParked(ctx, retryEvery); err != nil {
		return err
	}
	if err := e.planVerify(ctx); err != nil {
		return err
	}
	if err := e.obeyRepair(ctx); err != nil {
		return err
	}
	if err := e.planRescan(ctx); err != nil {
		return err
	}
	if err := e.compareLate(ctx); err != nil {
		return err
	}
	// reportReady only reports shards with stored checkpoints, since a reported state must survive
	// this process.
	return e.reportReady(ctx)
}

// unstored reports whether a shard waits only for its checkpoint.
func (e *Engine) unstored() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.shards {
		if s.complete() && !s.stored {
			return true
		}
	}
	return false
}

// serveSwitch compares late groups and reports drained shards.
func (e *Engine) serveSwitch(ctx context.Context) error {
	// A group parked at the last moment holds up the switch, so retries are frequent.
	if upgradestate.ApplyAllowed(e.current()) && time.Since(e.retried) >= retryInSwitching {
		if err := e.refreshParked(ctx); err != nil {
			return err
		}
		if err := e.retryParked(ctx, retryInSwitching); err != nil {
			return err
		}
	}
	if err := e.compareLate(ctx); err != nil {
		return err
	}
	return e.reportReady(ctx)
}

// lostOwnership drops the error of a commit that was refused because of a lock, and has ownership
// checked.
func (e *Engine) lostOwnership(err error) error {
	if errors.Is(err, coord.ErrConflict) {
		e.lookAtOwned()
		return nil
	}
	return err
}

// lookAtOwned makes watchOwnership read the ownership again.
func (e *Engine) lookAtOwned() {
	select {
	case e.readopt <- struct{}{}:
	default: // a check is already due
	}
}

// reportsAtOnce keeps a report and its locks below coord.MaxOps.
const reportsAtOnce = 48

// reportReady reports shards that are ready for the present phase and withdraws those that no
// longer are. It does not repeat reports that the Deployment holds.
func (e *Engine) reportReady(ctx context.Context) error {
	e.mu.Lock()
	up := e.record.Upgrade
	// There is no upgrade, or it belongs to another engine.
	if up == nil || e.over() || up.TargetVersion != e.Direction.To() || e.foreign(e.record) != nil {
		e.mu.Unlock()
		return nil
	}
	var ready, unready []int
	locks := map[int]coord.Condition{}
	for n, s := range e.shards {
		reported := slices.Contains(up.ReadyShards, n)
		isReady := e.waitsFor(n, s).Text == ""
		if isReady && !reported && !s.leaving {
			ready = append(ready, n)
			locks[n] = s.lock.Condition()
		}
		// During a switch a report stands: the fence keeps the shard as it was.
		if !isReady && reported && up.State == upgradestate.InitialSyncing && e.badly(n, s) {
			unready = append(unready, n)
		}
	}
	// A drained shard names the fences that it has seen. A report for other fences does not count.
	fences := upgradestate.FenceNames(e.record)
	e.mu.Unlock()
	slices.Sort(ready)
	for chunk := range slices.Chunk(ready, reportsAtOnce) {
		var conds []coord.Condition
		for _, n := range chunk {
			conds = append(conds, locks[n])
		}
		ev := upgradestate.Report{ID: up.ID, State: up.State, Attempt: up.Attempt, Shards: chunk}
		if up.State == upgradestate.Switching {
			ev.Fences = fences
		}
		if err := e.apply(ctx, ev, conds...); err != nil {
			return fmt.Errorf("report ready: %w", err)
		}
	}
	// A withdrawal needs no lock: it can only delay a switch.
	if len(unready) > 0 {
		if err := e.apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: unready}); err != nil {
			return fmt.Errorf("withdraw report: %w", err)
		}
	}
	return nil
}

// apply makes a transition. An outdated event is no error, since the newer record shows the reason.
func (e *Engine) apply(ctx context.Context, ev upgradestate.Event, conds ...coord.Condition) error {
	d, err := e.Deployments.Apply(ctx, ev, conds...)
	if errors.Is(err, upgradestate.ErrOutdated) {
		return e.refresh(ctx)
	}
	if err != nil {
		return e.lostOwnership(err)
	}
	e.setRecord(d)
	return nil
}

// badly reports whether a shard is too far from ready for its report to stand. It tolerates short
// lags, so that reports do not come and go with every batch. e.mu is held.
func (e *Engine) badly(n int, s *shard) bool {
	lagging := !s.behind.IsZero() && time.Since(s.behind) > 4*e.cfg.LagBound
	return e.sourceLacks() != "" || len(s.todo) > 0 || !s.verified || s.rescan || e.parkedIn(n) > 0 || e.failingIn(s, e.cfg.LagBound) > 0 || lagging || time.Since(s.heard) > silence ||
		time.Since(s.watchedAt) > silence || s.foreignStays() > 0 ||
		e.targetLacks() != ""
}

// silence is the maximum time without a delivery before a shard's lag counts as unknown. A stream
// delivers at least about once a second.
const silence = 5 * time.Second

// withdrawAll withdraws the reports of all owned shards.
func (e *Engine) withdrawAll(ctx context.Context) error {
	e.mu.Lock()
	up := e.record.Upgrade
	mine := slices.Sorted(maps.Keys(e.shards))
	e.mu.Unlock()
	if up == nil || len(mine) == 0 {
		return nil
	}
	_, err := e.Deployments.Apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: mine})
	// The upgrade is over, or its reports can no longer be withdrawn.
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil
	}
	return err
}

// waitsFor returns the reason why a shard is not ready. The zero value means ready. The text
// ForSwitch has no code, since the switch then waits for others. e.mu is held.
func (e *Engine) waitsFor(n int, s *shard) upgradestate.Blocker {
	waits := e.lacks(n, s)
	// A paused copy looks like a slow one unless the reason is shown.
	if why, standstill := e.Pacer.Reason(); standstill && waits.Text != "" && s.bulk() {
		waits.Text += ", which is paused: " + why
		switch e.Pacer.Cause() {
		case throttle.CausePaused:
			waits.Code = upgradestate.BlockPaused
		case throttle.CauseWindow:
			waits.Code = upgradestate.BlockWindow
		default:
			waits.Code = upgradestate.BlockThrottled
		}
	}
	return waits
}

// lacks is waitsFor without the pace. The first missing condition counts. Later ones depend on it.
// e.mu is held.
func (e *Engine) lacks(n int, s *shard) upgradestate.Blocker {
	if e.cfg.Snapshot {
		return e.lacksForSnapshot()
	}
	because := func(code upgradestate.BlockCode, format string, args ...any) upgradestate.Blocker {
		return upgradestate.Blocker{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	in := func(version string, b upgradestate.Blocker) upgradestate.Blocker {
		b.Place.Version = version
		return b
	}
	to := e.Direction.To()
	silent := time.Since(s.heard) > silence
	switching := e.record.Upgrade != nil && e.record.Upgrade.State == upgradestate.Switching
	switch {
	case e.sourceLacks() != "":
		return in(e.Direction.From(), because(upgradestate.BlockReplaced, "%s", e.sourceLacks()))
	case e.transformed():
		return because(upgradestate.BlockTransform, "a controller with the transform of the upgrade: its owner has another one")
	case len(s.todo) > 0:
		return because(upgradestate.BlockCopy, "copy of %d ranges", len(s.todo))
	case e.parkedIn(n) > 0:
		return because(upgradestate.BlockParked, "%d parked groups to be fixed or waived", e.parkedIn(n))
	case s.rescan:
		return because(upgradestate.BlockRescan, "%s", e.rescanWaits(s))
	case e.failingIn(s, 0) > 0:
		return because(upgradestate.BlockFailing, "%d groups that cannot be migrated yet", e.failingIn(s, 0))
	case !s.verified && s.verify == nil && !upgradestate.ApplyAllowed(e.record):
		return in(to, because(upgradestate.BlockPending, "comparison, when the target's collections are renamed, which keeps out late copies"))
	case !s.verified && s.verify == nil:
		return because(upgradestate.BlockCompare, "comparison, when all shards are copied")
	case !s.verified:
		return because(upgradestate.BlockCompare, "comparison of %d ranges", len(s.verify))
	case !switching && e.targetLacks() != "":
		// Before the results of comparisons: a collection that is gone cannot be compared.
		return in(to, because(upgradestate.BlockIndexes, "%s", e.targetLacks()))
	case s.found > 0:
		return because(upgradestate.BlockFound, "%d groups that differ", s.found)
	case s.watched.IsZero():
		return in(to, because(upgradestate.BlockTargetPlace, "a place in the changes of the target"))
	case s.foreign > 0:
		return in(to, because(upgradestate.BlockForeign, "%d groups that others may have changed in %s%s", s.foreign, to, e.keepOut()))
	case !s.stored:
		return because(upgradestate.BlockCheckpoint, "its checkpoint to be stored")
	// Before the drain step there is nothing to report, though the shard itself lacks nothing.
	case switching && e.record.Upgrade.Step != upgradestate.StepDrain:
		return upgradestate.Blocker{Text: ForSwitch}
	case switching && !e.seenFences(s):
		return because(upgradestate.BlockDrain, "changes up to the fence")
	case switching && s.watched.At.Compare(e.targetFloor) < 0:
		return in(to, because(upgradestate.BlockDrain, "changes of the target up to the switch"))
	case switching && len(s.late) > 0:
		return because(upgradestate.BlockLate, "second comparison of %d groups", len(s.late))
	// Lag no longer matters: the fence bounds the changes.
	case switching:
		return upgradestate.Blocker{}
	case s.took > e.cfg.LagBound && !silent:
		return because(upgradestate.BlockLag, "changes that are not applied: the latest took %v, more than switch.maxLag, %v",
			s.took.Round(10*time.Millisecond), e.cfg.LagBound)
	case silent && !s.heard.IsZero():
		return in(e.Direction.From(), because(upgradestate.BlockStream, "changes that do not arrive: the stream has delivered nothing for %s", silence))
	case s.inSync.IsZero() || silent:
		return because(upgradestate.BlockLag, "changes that are not applied")
	case time.Since(s.watchedAt) > silence:
		return in(to, because(upgradestate.BlockTargetLook, "changes of the target that are not looked at"))
	case time.Since(s.inSync) < e.cfg.StableFor || time.Since(e.busy) < e.cfg.StableFor:
		// Copies and comparisons slow clients down. Their queued writes would lengthen the switch.
		return because(upgradestate.BlockSettling, "being in sync for a while")
	case len(s.late) > e.cfg.LateBound:
		return because(upgradestate.BlockLate, "second comparison of %d groups", len(s.late))
	default:
		return upgradestate.Blocker{}
	}
}

// keepOut returns the remedy for changes of the target by others that never end, such as a job that
// still deletes in the ended version. It is empty while the target is not the way back. A rollback to the
// snapshot is no remedy: it is refused while the target follows. e.mu is held.
func (e *Engine) keepOut() string {
	to := e.Direction.To()
	if upgradestate.PreviousVersion(e.record) != to {
		return ""
	}
	return "; if this does not end, stop what still writes or deletes in " + to + ", or take away its right to"
}

// transformed reports whether another transformation than this engine's now makes the target's
// records. The engine then stops its work and reports nothing. e.mu is held.
func (e *Engine) transformed() bool { return errors.Is(e.foreign(e.record), ErrOtherTransform) }

// fenced reports whether a switch has set its fences. Before that step clients still write, and a
// change that the stream has not applied yet explains a difference. e.mu is held.
func (e *Engine) fenced() bool {
	if !e.switching() {
		return false
	}
	switch e.record.Upgrade.Step {
	case upgradestate.StepDrain, upgradestate.StepSealTarget, upgradestate.StepSealSource:
		return true
	case upgradestate.StepNone, upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepAbort:
		return false
	default:
		return false
	}
}

// seenFences reports whether a shard has applied all changes up to the fences in force, for the
// kinds that it follows. It skips lineage that an earlier direction left in the source: that is
// fenced, too, but no engine follows it. e.mu is held.
func (e *Engine) seenFences(s *shard) bool {
	for _, ns := range e.record.Namespaces {
		if ns.Version != e.Direction.From() {
			continue
		}
		for _, k := range ns.Kinds {
			if k.Fenced != "" && s.applied.markers[k.Kind] != k.Fenced && !transform.IsLineage(k.Kind) {
				return false
			}
		}
	}
	return true
}
