package switchover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller/coord"
	"dbcontroller/record"
	"dbcontroller/upgradestate"
)

// Deployments is what a driver needs of the Deployment.
type Deployments interface {
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// Held blocks until every server that is registered has acknowledged {id, attempt},
	// or ctx ends.
	Held(ctx context.Context, id string, attempt uint64) error
	// Parked counts the groups that are parked and not waived.
	Parked(ctx context.Context) (int, error)
}

// Config says how a driver works. Zero values mean the defaults named.
type Config struct {
	// HoldTimeout is how long servers have to acknowledge that they hold writes; 1 s.
	// The switch goes on without those that do not: the fence does not need them.
	HoldTimeout time.Duration
	// Deadline is how long SWITCHING may take before it is aborted; 10 s.
	Deadline time.Duration
}

// Driver drives one deployment's upgrades.
type Driver struct {
	deployments Deployments
	fencers     map[string]record.Fencer // by version
	cfg         Config
	log         *zap.Logger

	attempt   attempt
	begun     time.Time
	stepSince time.Time
	step      upgradestate.Step
	millis    map[string]int64
}

// attempt identifies one entry into SWITCHING.
type attempt struct {
	id string
	n  uint64
}

// New makes a driver for the versions whose fencers are given.
func New(d Deployments, fencers map[string]record.Fencer, cfg Config, log *zap.Logger) *Driver {
	if cfg.HoldTimeout == 0 {
		cfg.HoldTimeout = time.Second
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = 10 * time.Second
	}
	return &Driver{deployments: d, fencers: fencers, cfg: cfg, log: log}
}

// Run drives until ctx ends. Errors are tried again with backoff; they never end it.
func (r *Driver) Run(ctx context.Context) error {
	watch := r.deployments.Watch(ctx)
	var d upgradestate.Deployment
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case seen, open := <-watch:
			if !open {
				return ctx.Err()
			}
			if seen.Revision <= d.Revision {
				continue // this driver made it, or a newer one
			}
			d = seen
		case <-wait.C:
			if d.Name == "" {
				continue
			}
		}
		wait.Stop()
		next, err := r.drive(ctx, d)
		if next.Revision > d.Revision {
			d = next
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.log.Warn("switch step will be tried again", zap.String("step", string(r.step)), zap.Error(err))
			wait.Reset(retry.NextBackOff())
		default:
			retry.Reset()
			if left := r.untilDeadline(d); left > 0 {
				wait.Reset(left)
			} else if d.Upgrade != nil && upgradestate.ReadyToSwitch(d) {
				wait.Reset(time.Second) // parked groups kept it from starting: look again
			}
		}
	}
}

// drive goes on from a record as far as it gets without waiting for others.
func (r *Driver) drive(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	for {
		r.observe(d)
		if r.overdue(d) {
			return r.apply(ctx, d, upgradestate.Abort{ID: d.Upgrade.ID, Reason: fmt.Sprintf("SWITCHING passed its deadline of %s in step %s", r.cfg.Deadline, d.Upgrade.Step)})
		}
		next, moved, err := r.once(ctx, d)
		if err != nil || !moved {
			return next, err
		}
		d = next
	}
}

// once does what the record asks for now. moved is false when it only waits.
func (r *Driver) once(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, bool, error) {
	var events []upgradestate.Event
	bounded, cancel := context.WithTimeout(ctx, r.actTimeout(d))
	defer cancel()
	g, gctx := errgroup.WithContext(bounded)
	done := make(chan upgradestate.Event, 64)
	for _, a := range upgradestate.Actions(d) {
		switch a := a.(type) {
		case upgradestate.Hold:
			hold, cancel := context.WithTimeout(ctx, r.cfg.HoldTimeout)
			err := r.deployments.Held(hold, a.ID, a.Attempt)
			cancel()
			if ctx.Err() != nil {
				return d, false, ctx.Err()
			}
			if err != nil {
				r.log.Warn("not every server holds writes; the fence will", zap.Error(err))
			}
			events = append(events, upgradestate.Held{ID: a.ID})
		case upgradestate.Perform:
			g.Go(func() error {
				if err := r.perform(gctx, a); err != nil {
					return err
				}
				done <- upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}
				return nil
			})
		case upgradestate.Lift:
			g.Go(func() error {
				if err := r.lift(gctx, a); err != nil {
					return err
				}
				done <- upgradestate.Lifted{Version: a.Version, Kind: a.Place.Kind, From: a.From}
				return nil
			})
		case upgradestate.StartSwitch:
			n, err := r.deployments.Parked(ctx)
			if err != nil {
				return d, false, fmt.Errorf("count parked: %w", err)
			}
			if n == 0 {
				events = append(events, a)
			}
		case upgradestate.Drained:
			events = append(events, a)
		case upgradestate.Flip:
			a.Switch = r.measured(d)
			events = append(events, a)
		case upgradestate.FinishAbort:
			events = append(events, upgradestate.Aborted{ID: a.ID})
		case upgradestate.AwaitReports:
		}
	}
	err := g.Wait()
	close(done)
	for ev := range done {
		events = append(events, ev)
	}
	// What was confirmed counts even if another act failed.
	next := d
	for _, ev := range events {
		var applyErr error
		if next, applyErr = r.apply(ctx, next, ev); applyErr != nil {
			return next, false, errors.Join(err, applyErr)
		}
	}
	return next, err == nil && len(events) > 0, err
}

// apply makes a transition. That it is outdated is no error: the watch brings the record
// that says why.
func (r *Driver) apply(ctx context.Context, d upgradestate.Deployment, ev upgradestate.Event) (upgradestate.Deployment, error) {
	begun := time.Now()
	next, err := r.deployments.Apply(ctx, ev)
	if errors.Is(err, upgradestate.ErrOutdated) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("apply %T: %w", ev, err)
	}
	if flip, ok := ev.(upgradestate.Flip); ok && next.LastSwitch != nil && next.LastSwitch.ID == flip.ID {
		r.log.Info("switched", zap.String("version", next.CurrentVersion), zap.Any("millis", next.LastSwitch.Millis),
			zap.Duration("flip", time.Since(begun)))
	}
	return next, nil
}

func (r *Driver) perform(ctx context.Context, a upgradestate.Perform) error {
	f, err := r.fencer(a.Version)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = f.Fence(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: token(a.Place), To: a.Pending.To, Restore: a.Restore})
	if err != nil {
		return fmt.Errorf("%s of %s/%s: %w", a.Pending.Reason, a.Version, a.Place.Kind, err)
	}
	r.log.Info("act is confirmed", zap.String("version", a.Version), zap.String("kind", a.Place.Kind),
		zap.String("reason", string(a.Pending.Reason)), zap.String("to", a.Pending.To), zap.Duration("took", time.Since(begun)))
	return nil
}

func (r *Driver) lift(ctx context.Context, a upgradestate.Lift) error {
	f, err := r.fencer(a.Version)
	if err != nil {
		return err
	}
	tok := token(a.Place)
	tok.Name = a.To
	if err := f.Lift(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.From, Restore: a.Restore}); err != nil {
		return fmt.Errorf("lift the fence of %s/%s: %w", a.Version, a.Place.Kind, err)
	}
	return nil
}

func (r *Driver) fencer(version string) (record.Fencer, error) {
	f := r.fencers[version]
	if f == nil {
		return nil, fmt.Errorf("version %s is not configured here", version)
	}
	return f, nil
}

func token(p upgradestate.Place) record.Token {
	return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
}
