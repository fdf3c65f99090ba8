package syncer

import (
	"context"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// watchRecord keeps e.record fresh and ends the engine when its epoch has passed.
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
			return errOver // another version is wanted now
		}
		if err := e.foreign(d); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// keepsLateWatch reports whether the old stream must stay open after the flip: a fence
// of the validator class lets deletes through, and they have to be reported.
func (e *Engine) keepsLateWatch(d upgradestate.Deployment) bool {
	if d.Epoch != e.cfg.Epoch+1 || e.cfg.Snapshot {
		return false
	}
	for _, ns := range d.Namespaces {
		if ns.Version != e.Direction.From() {
			continue
		}
		for _, k := range ns.Kinds {
			if k.Fixed && k.Fence == string(record.FenceValidator) {
				return true
			}
		}
	}
	return false
}

func (e *Engine) setRecord(d upgradestate.Deployment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.Revision < e.record.Revision {
		return
	}
	if step(e.record) != step(d) || upgradestate.ApplyAllowed(e.record) != upgradestate.ApplyAllowed(d) {
		e.wakeHousekeeping()
	}
	e.record = d
	e.targetFloor = targetFloor(d)
	e.setPace()
	e.announce()
}

// wakeHousekeeping has what is done now and then done now.
func (e *Engine) wakeHousekeeping() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func step(d upgradestate.Deployment) upgradestate.Step {
	if d.Upgrade == nil {
		return upgradestate.StepNone
	}
	return d.Upgrade.Step
}

// announce wakes everyone in await. e.mu is held.
func (e *Engine) announce() {
	close(e.news)
	e.news = make(chan struct{})
}

// await blocks until ok, which is called with e.mu held, is true.
func (e *Engine) await(ctx context.Context, ok func() bool) error {
	for {
		e.mu.Lock()
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

// over reports that this engine's direction has ended (e.mu is held by the caller of await).
func (e *Engine) over() bool { return e.record.Epoch > e.cfg.Epoch }
