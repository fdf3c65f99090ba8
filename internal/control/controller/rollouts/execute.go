package rollouts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

// execute carries out the orders for this controller's deployment until ctx ends.
func (r *Runner) execute(ctx context.Context) error {
	orders, records := r.Rollouts.Watch(ctx), r.Store.Watch(ctx)
	var all []rollout.Rollout
	var d rollout.Deployment
	retry := time.NewTimer(0)
	defer retry.Stop()
	for ctx.Err() == nil {
		select {
		case now, ok := <-orders:
			if !ok {
				return nil
			}
			all = now
		case now, ok := <-records:
			if !ok {
				return nil
			}
			d = seenRecord(now)
		case <-retry.C:
		case <-ctx.Done():
			return nil
		}
		for _, ro := range all {
			if rollout.Next(ro, r.Store.Name(), d).Act == rollout.Nothing {
				continue
			}
			// The watches may be behind, or the act was refused: look again later in any case.
			r.act(ctx, ro.Name)
			retry.Reset(r.Look)
		}
	}
	return nil
}

// act reads a rollout and the deployment anew and makes the act that follows. Its caller repeats it,
// so an unknown outcome needs nothing else.
func (r *Runner) act(ctx context.Context, name string) {
	ro, err := r.Rollouts.Get(ctx, name)
	if err != nil {
		r.Log.Info("cannot read a rollout", zap.String("rollout", name), zap.Error(err))
		return
	}
	d, err := r.Store.Get(ctx)
	if err != nil {
		r.Log.Info("cannot read the deployment for a rollout", zap.String("rollout", name), zap.Error(err))
		return
	}
	a := rollout.Next(ro, r.Store.Name(), seenRecord(d))
	conditions := []coord.Condition{r.Rollouts.Condition(ro)}
	by := fmt.Sprintf("rollout %s of %s", ro.Name, ro.By)
	switch a.Act {
	case rollout.Begin:
		// Better refused now than with the deployment at a version that nothing leads back from.
		if why := r.noWayBack(ro, a, d); why != "" {
			r.report(ctx, name, a.ID, errors.New(why))
			return
		}
		// The record's own compare-and-swap would try again on a later record, which may have the
		// upgrade of somebody else.
		conditions = append(conditions, r.Store.Condition(d))
		err = r.Acts.BeginFor(ctx, a.ID, a.Target, by, conditions...)
	case rollout.Abort:
		err = r.Acts.AbortFor(ctx, a.ID, a.Reason, by, conditions...)
	default:
		return
	}
	switch {
	case err == nil:
		r.Log.Info("acts for a rollout", zap.String("rollout", name), zap.String("act", string(a.Act)), zap.String("upgrade", a.ID))
	// The rollout or the deployment has changed: the next reading decides.
	case errors.Is(err, deployment.ErrOwnership), errors.Is(err, upgradestate.ErrOutdated), ctx.Err() != nil:
	default:
		r.report(ctx, name, a.ID, err)
	}
}

// noWayBack returns why an upgrade must not begin, because a wave that fails is to go back and this
// deployment could not. "" means that it may.
func (r *Runner) noWayBack(ro rollout.Rollout, a rollout.Action, d upgradestate.Deployment) string {
	if ro.State != rollout.Running || ro.Policy.OnFailure != rollout.RollBackToo || r.NoWayBack == nil {
		return ""
	}
	if why := r.NoWayBack(d.CurrentVersion); why != "" {
		return fmt.Sprintf("after a switch to %s it could not roll back: %s; or begin the rollout with --stop-only", a.Target, why)
	}
	return ""
}

// report stores why an order does not go on, for people.
func (r *Runner) report(ctx context.Context, name, id string, why error) {
	r.Log.Info("an order of a rollout does not go on", zap.String("rollout", name), zap.String("upgrade", id), zap.Error(why))
	_, err := r.Rollouts.Change(ctx, name, func(ro rollout.Rollout) (rollout.Rollout, bool, error) {
		next, ok := rollout.Report(ro, r.Store.Name(), id, why.Error())
		return next, ok, nil
	})
	if err != nil && ctx.Err() == nil {
		r.Log.Info("cannot store why", zap.String("rollout", name), zap.Error(err))
	}
}
