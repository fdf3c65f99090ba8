package syncer

import (
	"context"
	"slices"

	"dbcontroller.dev/upgradestate"
)

// watchRecord keeps e.record fresh and ends the engine when its work is over or belongs to another
// engine.
func (e *Engine) watchRecord(ctx context.Context) error {
	for d := range e.Deployments.Watch(ctx) {
		e.setRecord(d)
		if d.Epoch > e.cfg.Epoch && !e.keepsLateWatch(d) {
			return errOver
		}
		if d.Epoch == e.cfg.Epoch && !e.asked(d) {
			return errOver
		}
		if u := d.Upgrade; u != nil && d.Epoch == e.cfg.Epoch && u.TargetVersion != e.Direction.To() {
			return errOver // another version is the target now
		}
		if err := e.foreign(d); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// keepsLateWatch reports whether the stream of the old direction must stay open after the flip. A
// fence of the validator class lets deletes through, and they are counted.
func (e *Engine) keepsLateWatch(d upgradestate.Deployment) bool {
	if d.Epoch != e.cfg.Epoch+1 || e.cfg.Snapshot {
		return false
	}
	source, _ := d.Namespace(e.Direction.From())
	return slices.ContainsFunc(source.Kinds, PassesDeletes)
}

// setRecord installs a record unless it is older than the present one, and wakes its users.
func (e *Engine) setRecord(d upgradestate.Deployment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// A refresh and the watch may deliver out of order.
	if d.Revision < e.record.Revision {
		return
	}
	// Shards have new work at each step of a switch. The tick would delay it.
	if step(e.record) != step(d) || upgradestate.ApplyAllowed(e.record) != upgradestate.ApplyAllowed(d) {
		e.wakeHousekeeping()
	}
	before := e.over()
	e.record = d
	if !before && e.over() {
		e.leave()
	}
	e.targetFloor = targetFloor(d)
	e.setPace()
	e.announce()
}

// leave notes the end of the direction in its shards. e.mu is held.
func (e *Engine) leave() {
	for _, s := range e.shards {
		s.left = s.compared.leaving()
	}
	// The stream of the source must show the origin of changes now.
	e.restart = e.keepsLateWatch(e.record)
}

// wakeHousekeeping starts a round of housekeeping at once.
func (e *Engine) wakeHousekeeping() {
	select {
	case e.wake <- struct{}{}:
	default: // a round is already due
	}
}

func step(d upgradestate.Deployment) upgradestate.Step {
	if d.Upgrade == nil {
		return upgradestate.StepNone
	}
	return d.Upgrade.Step
}

// announce wakes all callers of await. e.mu is held.
func (e *Engine) announce() {
	// A closed channel wakes any number of waiters. The next wait needs a new one.
	close(e.news)
	e.news = make(chan struct{})
}

// await blocks until ok returns true. It calls ok with e.mu held.
func (e *Engine) await(ctx context.Context, ok func() bool) error {
	for {
		e.mu.Lock()
		// Taken under the same lock as ok, so that no announcement is missed in between.
		done, news := ok(), e.news
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

func (e *Engine) current() upgradestate.Deployment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record
}

// over reports whether the direction of this engine has ended. e.mu is held.
func (e *Engine) over() bool { return e.record.Epoch > e.cfg.Epoch }
