package rollouts

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/shards"
)

// coordinate campaigns for driving while there is a rollout to drive. At rest it costs nothing.
func (r *Runner) coordinate(ctx context.Context) error {
	for all := range r.Rollouts.Watch(ctx) {
		if !slices.ContainsFunc(all, rollout.Active) {
			continue
		}
		if err := shards.Lead(ctx, r.Coord, r.Rollouts.DriverKey(), r.ID, r.Log, r.drive); err != nil {
			return err
		}
	}
	return nil
}

// through is a rollout with the latest revision that its driver has read.
type through struct {
	name     string
	revision int64
}

// drive drives all active rollouts, and returns when there is none any more.
func (r *Runner) drive(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	ended := make(chan through)
	driven := map[string]bool{}
	// The watch may be behind: it shows a rollout as active for a while after its driver has read the
	// end. Only a later revision needs a driver again.
	read := map[string]int64{}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch := r.Rollouts.Watch(ctx)
	var all []rollout.Rollout
	for known := false; !known || len(driven) > 0 || slices.ContainsFunc(all, rollout.Active); {
		select {
		case now, ok := <-watch:
			if !ok {
				return g.Wait()
			}
			all, known = now, true
		case end := <-ended:
			delete(driven, end.name)
			read[end.name] = end.revision
		}
		for _, ro := range all {
			if rollout.Active(ro) && !driven[ro.Name] && ro.Revision > read[ro.Name] {
				driven[ro.Name] = true
				g.Go(func() error {
					last := r.driveOne(ctx, ro)
					select {
					case ended <- through{ro.Name, last}:
					case <-ctx.Done():
					}
					return nil
				})
			}
		}
	}
	stop()
	return g.Wait()
}

// driveOne advances one rollout until it needs no driver. It returns the latest revision that it has
// read, at least the one of first.
func (r *Runner) driveOne(ctx context.Context, first rollout.Rollout) (last int64) {
	ctx, leave := context.WithCancel(ctx)
	defer leave() // otherwise the watch would go on with the context of all drivers
	c := newClock()
	name, last := first.Name, first.Revision
	watch := r.Rollouts.Watch(ctx)
	for {
		ro, err := r.Rollouts.Get(ctx, name)
		if err == nil {
			last = max(last, ro.Revision)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, deployment.ErrNoRollout), err == nil && !rollout.Active(ro):
			return last
		case err != nil:
			r.Log.Info("cannot read a rollout", zap.String("rollout", name), zap.Error(err))
		default:
			var moved bool
			if ro, moved = r.advance(ctx, ro, c); moved {
				continue
			}
		}
		r.wait(ctx, watch, ro)
	}
}

// wait waits until the next look at a rollout, or until somebody else changes it.
func (r *Runner) wait(ctx context.Context, watch <-chan []rollout.Rollout, ro rollout.Rollout) {
	timer := time.NewTimer(r.Look)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case all := <-watch:
			for _, now := range all {
				// A change of our own needs no look: a text that changes with each look would
				// otherwise never let the driver rest.
				if now.Name == ro.Name && now.Revision > ro.Revision {
					return
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// advance makes one transition of a rollout, and returns it. moved reports that the driver must look
// again at once.
func (r *Runner) advance(ctx context.Context, ro rollout.Rollout, c *clock) (now rollout.Rollout, moved bool) {
	c.tick(time.Now(), away)
	seen := rollout.Seen{Checks: r.check(ctx, ro), Deployments: r.look(ctx, ro), Now: time.Now().UTC()}
	c.tick(time.Now(), r.longestLook(ro))
	seen.Driver, seen.Clock = c.driver, c.sum
	next := rollout.Advance(ro, seen)
	if ctx.Err() != nil || reflect.DeepEqual(next, ro) {
		return ro, false
	}
	stored, err := r.Rollouts.Store(ctx, next, ro.Revision)
	switch {
	case err == nil:
	// Somebody else has changed it, or it is not known: the next reading decides.
	case errors.Is(err, coord.ErrConflict), errors.Is(err, coord.ErrUnknown):
		return ro, true
	default:
		r.Log.Info("cannot store a rollout", zap.String("rollout", ro.Name), zap.Error(err))
		return ro, false
	}
	if next.State == ro.State && next.Wave == ro.Wave && next.Step == ro.Step {
		return stored, false
	}
	r.Log.Info("rollout", zap.String("rollout", ro.Name), zap.String("state", string(next.State)), zap.Int("wave", next.Wave+1),
		zap.String("step", string(next.Step)), zap.String("reason", next.Reason))
	return stored, true
}
