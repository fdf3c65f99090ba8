package switchover

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// look reads, once per try of the flip, the changes in the target since the switch began. It keeps the
// resulting comparison in r.differ. It takes the result of lookAhead if there is one.
func (r *Driver) look(ctx context.Context, d upgradestate.Deployment) error {
	now := attempt{d.Upgrade.ID, d.Upgrade.Attempt}
	if r.cfg.Target == nil || r.watched == now {
		return nil
	}
	// A comparison of an earlier attempt must not decide about this one.
	r.differ = nil
	if d.Upgrade.TargetSince != "" && !d.Upgrade.Snapshot {
		differ, err := r.changed(ctx, d, now)
		if err != nil {
			return fmt.Errorf("look for changes by others in %s: %w", d.Upgrade.TargetVersion, err)
		}
		r.differ = differ
	}
	// Set last: a failed read must be repeated.
	r.watched = now
	return nil
}

// reading is a read of the target's changes that began before the seal was confirmed.
type reading struct {
	of     attempt
	cancel context.CancelFunc
	done   chan struct{} // closed when differ and err are set
	differ func(context.Context, upgradestate.Deployment) error
	err    error
}

// lookAhead begins to read the target's changes while its seals are still being set. To open the
// stream and to read the changes of the whole switch would otherwise lengthen the pause. The result
// is the same: the read ends at each kind's seal, whose name is announced already, so it sees
// everything that others wrote before. Nobody waits for it in StepSealTarget, because a seal may
// fail. ctx is that of Run: the read goes on in the next pass.
func (r *Driver) lookAhead(ctx context.Context, d upgradestate.Deployment) {
	now := attempt{d.Upgrade.ID, d.Upgrade.Attempt}
	if r.cfg.Target == nil || d.Upgrade.TargetSince == "" || d.Upgrade.Snapshot || r.watched == now ||
		r.reading != nil && r.reading.of == now {
		return
	}
	r.read(ctx, d, now)
}

// read begins to read the target's changes. The read ends with leaveReading and not with ctx, which
// may be that of one pass.
func (r *Driver) read(ctx context.Context, d upgradestate.Deployment, now attempt) *reading {
	r.leaveReading()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &reading{of: now, cancel: cancel, done: make(chan struct{})}
	r.reading = one
	r.readers.Go(func() {
		defer close(one.done)
		one.differ, one.err = r.cfg.Target.Changed(ctx, d)
	})
	return one
}

// changed returns the result of this attempt's lookAhead. It begins a read itself if there is none,
// or if that read failed. It leaves the read at the end of ctx, because an abort must not wait for
// the target.
func (r *Driver) changed(ctx context.Context, d upgradestate.Deployment, now attempt) (func(context.Context, upgradestate.Deployment) error, error) {
	defer r.leaveReading() // each later try of the flip needs a read of its own
	one, ahead := r.reading, true
	if one == nil || one.of != now {
		one, ahead = r.read(ctx, d, now), false
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-one.done:
		}
		if one.err == nil || !ahead {
			return one.differ, one.err
		}
		one, ahead = r.read(ctx, d, now), false
	}
}

// leaveReading ends a read that nobody needs any longer. It does not wait for it, because an abort
// must not wait for the target.
func (r *Driver) leaveReading() {
	if r.reading != nil {
		r.reading.cancel()
		r.reading = nil
	}
}

// markAhead lets the Marks read ahead, so that these reads do not lengthen the pause.
func (r *Driver) markAhead(ctx context.Context, d upgradestate.Deployment) {
	marks, can := r.cfg.Marks.(AheadMarks)
	now := attempt{d.Upgrade.ID, d.Upgrade.Attempt}
	if !can || r.aheadOf == now {
		return
	}
	r.aheadOf = now
	// ctx is that of Run: the read goes on in the next pass.
	ctx, cancel := context.WithTimeout(ctx, r.operationTimeout(d))
	r.readers.Go(func() {
		defer cancel()
		if err := marks.ReadAhead(ctx, d); err != nil && ctx.Err() == nil {
			r.log.Debug("cannot read the marks ahead", zap.Error(err))
		}
	})
}
