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
	// Checks are asked before what cannot be taken back easily; nil asks nobody.
	Checks Checks
}

// Checks are conditions of a switch that the record does not hold.
type Checks interface {
	// BeforeSwitch is asked before SWITCHING begins, again and again until it is nil.
	BeforeSwitch(ctx context.Context, d upgradestate.Deployment) error
	// BeforeSeal is asked when everything is drained, the last moment at which the
	// application loses nothing but time. An error aborts the switch.
	BeforeSeal(ctx context.Context, d upgradestate.Deployment) error
}

// Driver drives one deployment's upgrades.
type Driver struct {
	deployments Deployments
	fencers     map[string]record.Fencer // by version
	cfg         Config
	log         *zap.Logger

	watch <-chan upgradestate.Deployment
	ahead *upgradestate.Deployment // taken from watch while servers were waited for

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
	r.watch, r.ahead = r.deployments.Watch(ctx), nil
	var d upgradestate.Deployment
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		if r.ahead != nil {
			d, r.ahead = *r.ahead, nil
		} else {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case seen, open := <-r.watch:
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
			again := retry.NextBackOff()
			if left := r.untilDeadline(d); left > 0 {
				again = min(again, left)
			}
			wait.Reset(again)
		default:
			retry.Reset()
			if again := r.lookAgain(d); again > 0 {
				wait.Reset(again)
			}
		}
	}
}

// drive goes on from a record as far as it gets without waiting for others.
func (r *Driver) drive(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	for {
		r.observe(d)
		var next upgradestate.Deployment
		var err error
		if r.overdue(d) {
			next, err = r.apply(ctx, d, upgradestate.Abort{ID: d.Upgrade.ID, Reason: fmt.Sprintf("SWITCHING passed its deadline of %s in step %s", r.cfg.Deadline, d.Upgrade.Step)})
		} else {
			next, err = r.once(ctx, d)
		}
		// What has moved nothing waits for others, or is outdated: the watch brings the
		// record that says so.
		if err != nil || next.Revision <= d.Revision {
			return next, err
		}
		d = next
	}
}

// once does what the record asks for now, and returns the record that it led to.
func (r *Driver) once(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	bounded, cancel := context.WithTimeout(ctx, r.actTimeout(d))
	defer cancel()
	actions := upgradestate.Actions(d)
	events := make([]upgradestate.Event, len(actions)) // nil: nothing came of the action
	var g errgroup.Group                               // acts do not end each other
	for i, a := range actions {
		g.Go(func() error {
			ev, err := r.act(bounded, d, a)
			if err == nil {
				events[i] = ev
			}
			return err
		})
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	// What was confirmed counts even if another act failed.
	next := d
	for _, ev := range events {
		if ev == nil {
			continue
		}
		applied, applyErr := r.apply(ctx, next, ev)
		if applyErr != nil {
			return next, errors.Join(err, applyErr)
		}
		next = applied
	}
	return next, err
}

// act does one action and returns the event that came of it.
func (r *Driver) act(ctx context.Context, d upgradestate.Deployment, a upgradestate.Action) (upgradestate.Event, error) {
	switch a := a.(type) {
	case upgradestate.Hold:
		if !r.hold(ctx, d, a) {
			return nil, nil
		}
		return upgradestate.Held{ID: a.ID}, nil
	case upgradestate.Perform:
		return upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}, r.perform(ctx, a)
	case upgradestate.Lift:
		return upgradestate.Lifted{Version: a.Version, Kind: a.Place.Kind, From: a.From}, r.lift(ctx, a)
	case upgradestate.StartSwitch:
		return r.start(ctx, d, a)
	case upgradestate.Drained:
		return r.drained(ctx, d, a)
	case upgradestate.Flip:
		a.Switch = r.measured(d)
		return a, r.refence(ctx, d)
	case upgradestate.FinishAbort:
		return upgradestate.Aborted{ID: a.ID}, nil
	case upgradestate.AwaitReports:
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown action %T", a)
	}
}

// hold waits for the servers, not longer than they have, and not when the record has
// changed: an abort does not wait for servers.
func (r *Driver) hold(ctx context.Context, d upgradestate.Deployment, a upgradestate.Hold) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	held := make(chan error, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, r.cfg.HoldTimeout)
		defer cancel()
		held <- r.deployments.Held(short, a.ID, a.Attempt)
	}()
	watch := r.watch
	for {
		select {
		case err := <-held:
			if err != nil && ctx.Err() == nil {
				r.log.Warn("not every server holds writes; the fence will", zap.Error(err))
			}
			return ctx.Err() == nil
		case seen, open := <-watch:
			if !open {
				watch = nil // ctx ends, and the wait with it
			} else if seen.Revision > d.Revision {
				r.ahead = &seen
				cancel()
				<-held
				return false
			}
		}
	}
}

// start begins SWITCHING unless something speaks against it that is not in the record.
func (r *Driver) start(ctx context.Context, d upgradestate.Deployment, a upgradestate.StartSwitch) (upgradestate.Event, error) {
	n, err := r.deployments.Parked(ctx)
	if err != nil {
		return nil, fmt.Errorf("count parked: %w", err)
	}
	if n > 0 {
		return nil, nil
	}
	if r.cfg.Checks != nil {
		if err := r.cfg.Checks.BeforeSwitch(ctx, d); err != nil {
			return nil, fmt.Errorf("switch does not begin: %w", err)
		}
	}
	return a, nil
}

// drained goes on to the seal, or aborts when the drain has brought up something that
// must not go with the flip. Nobody has lost anything up to here.
func (r *Driver) drained(ctx context.Context, d upgradestate.Deployment, a upgradestate.Drained) (upgradestate.Event, error) {
	n, err := r.deployments.Parked(ctx)
	if err != nil {
		return nil, fmt.Errorf("count parked: %w", err)
	}
	if n > 0 {
		return upgradestate.Abort{ID: a.ID, Reason: fmt.Sprintf("%d groups were parked during the switch: see 'parked', fix or waive them, and begin again", n)}, nil
	}
	if r.cfg.Checks != nil {
		if err := r.cfg.Checks.BeforeSeal(ctx, d); err != nil {
			return upgradestate.Abort{ID: a.ID, Reason: err.Error()}, nil
		}
	}
	return a, nil
}

// refence looks once more, right before the flip, that the fences of fixed-name kinds
// are in force: these classes cannot bind a fence to one attempt, so that a driver that
// slept may have lifted them.
func (r *Driver) refence(ctx context.Context, d upgradestate.Deployment) error {
	source, _ := d.Namespace(d.CurrentVersion)
	for _, k := range source.Kinds {
		if !k.Fixed || k.Fenced == "" || k.Fence == string(record.FenceUUID) {
			continue
		}
		f, err := r.fencer(source.Version)
		if err != nil {
			return err
		}
		tok := record.Token{Kind: k.Kind, Name: k.Kind, ID: k.ID, Fixed: true}
		if err := f.Fence(ctx, record.Fence{Class: record.FenceClass(k.Fence), Token: tok, To: k.Fenced, Restore: k.Restore}); err != nil {
			return fmt.Errorf("confirm the fence of %s/%s again: %w", source.Version, k.Kind, err)
		}
	}
	return nil
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
