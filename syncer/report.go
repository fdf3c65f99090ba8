package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/throttle"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// housekeep does what is done now and then: comparisons and reports. While an upgrade
// switches it runs at every piece of news instead, and does only what the switch waits for.
func (e *Engine) housekeep(ctx context.Context) error {
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
			err = e.serveSync(ctx)
			news = nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, errOver) {
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

// switching reports that an upgrade is in SWITCHING. e.mu is held.
func (e *Engine) switching() bool {
	u := e.record.Upgrade
	return !e.over() && u != nil && u.State == upgradestate.Switching
}

func (e *Engine) serveSync(ctx context.Context) error {
	if err := e.refreshParked(ctx); err != nil {
		return err
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
	// What is reported must not be lost with this process: a shard is reported once keep has stored
	// its checkpoint.
	return e.reportReady(ctx)
}

// unstored reports that a shard waits for nothing but its checkpoint.
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

// serveSwitch compares what changed late and reports the shards that are drained.
func (e *Engine) serveSwitch(ctx context.Context) error {
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

// lostOwnership causes a check of what is owned now when a commit was refused for a lock.
func (e *Engine) lostOwnership(err error) error {
	if errors.Is(err, coord.ErrConflict) {
		e.lookAtOwned()
		return nil
	}
	return err
}

// lookAtOwned has watchOwnership ask for what is owned now.
func (e *Engine) lookAtOwned() {
	select {
	case e.readopt <- struct{}{}:
	default:
	}
}

// reportsAtOnce keeps a report and its locks below coord.MaxOps.
const reportsAtOnce = 48

// reportReady reports shards that are ready for the present phase, and withdraws those
// that no longer are. What the record holds already is not reported again.
func (e *Engine) reportReady(ctx context.Context) error {
	e.mu.Lock()
	up := e.record.Upgrade
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
		if !isReady && reported && up.State == upgradestate.InitialSyncing && e.badly(n, s) {
			unready = append(unready, n)
		}
	}
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
	if len(unready) > 0 {
		if err := e.apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: unready}); err != nil {
			return fmt.Errorf("withdraw report: %w", err)
		}
	}
	return nil
}

// apply makes a transition; that it is outdated is no error, the newer record shows why.
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

// badly reports that a shard is so far from ready that its report must be taken back.
func (e *Engine) badly(n int, s *shard) bool {
	lagging := !s.behind.IsZero() && time.Since(s.behind) > 4*e.cfg.LagBound
	return e.sourceLacks() != "" || len(s.todo) > 0 || !s.verified || s.rescan || e.parkedIn(n) > 0 || e.failingIn(s, e.cfg.LagBound) > 0 || lagging || time.Since(s.heard) > silence ||
		time.Since(s.watchedAt) > silence || s.foreignStays() > 0 ||
		e.targetLacks() != ""
}

// silence is how long a stream, which delivers something at least about once a second, may
// deliver nothing before it is no longer known how far behind a shard is.
const silence = 5 * time.Second

// withdrawAll takes back the reports of all owned shards.
func (e *Engine) withdrawAll(ctx context.Context) error {
	e.mu.Lock()
	up := e.record.Upgrade
	mine := slices.Sorted(maps.Keys(e.shards))
	e.mu.Unlock()
	if up == nil || len(mine) == 0 {
		return nil
	}
	_, err := e.Deployments.Apply(ctx, upgradestate.Withdraw{ID: up.ID, Shards: mine})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil
	}
	return err
}

// waitsFor returns what keeps a shard from being ready; the zero value is ready. ForSwitch has no
// code: the switch waits for others. e.mu is held.
func (e *Engine) waitsFor(n int, s *shard) upgradestate.Blocker {
	waits := e.lacks(n, s)
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
		// Before what a comparison waits for: where a collection is gone nothing can be compared.
		return in(to, because(upgradestate.BlockIndexes, "%s", e.targetLacks()))
	case s.found > 0:
		return because(upgradestate.BlockFound, "%d groups that differ", s.found)
	case s.watched.IsZero():
		return in(to, because(upgradestate.BlockTargetPlace, "a place in the changes of the target"))
	case s.foreign > 0:
		return in(to, because(upgradestate.BlockForeign, "%d groups that others may have changed in %s", s.foreign, to))
	case !s.stored:
		return because(upgradestate.BlockCheckpoint, "its checkpoint to be stored")
	case switching && e.record.Upgrade.Step != upgradestate.StepDrain:
		return upgradestate.Blocker{Text: ForSwitch}
	case switching && !e.seenFences(s):
		return because(upgradestate.BlockDrain, "changes up to the fence")
	case switching && s.watched.At.Compare(e.targetFloor) < 0:
		return in(to, because(upgradestate.BlockDrain, "changes of the target up to the switch"))
	case switching && len(s.late) > 0:
		return because(upgradestate.BlockLate, "second comparison of %d groups", len(s.late))
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
		// Copying and comparing slow clients down; what they have queued up would count
		// towards the pause.
		return because(upgradestate.BlockSettling, "being in sync for a while")
	case len(s.late) > e.cfg.LateBound:
		return because(upgradestate.BlockLate, "second comparison of %d groups", len(s.late))
	default:
		return upgradestate.Blocker{}
	}
}

// transformed reports that records of the target are made by another transform than this
// engine's: it works no longer, and reports nothing. e.mu is held.
func (e *Engine) transformed() bool { return errors.Is(e.foreign(e.record), ErrOtherTransform) }

// seenFences reports that the shard has applied everything up to the fences in force, of
// the kinds that it follows: lineage that an earlier direction left in the source is
// fenced with the rest, and is unowned.
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
