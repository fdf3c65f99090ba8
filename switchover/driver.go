package switchover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
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

// Config configures a driver. Zero values mean the defaults named.
type Config struct {
	// HoldTimeout is how long servers have to acknowledge that they hold writes; 1 s.
	// The switch goes on without those that do not: the fence does not need them.
	HoldTimeout time.Duration
	// Deadline is how long SWITCHING may take before it is aborted, unless the upgrade's
	// policy sets it; 10 s.
	Deadline time.Duration
	// MaxHold is how long an attempt may hold clients' writes before it gives them back,
	// unless the policy sets it; 0: as long as the deadline allows.
	MaxHold time.Duration
	// Retries is how often a switch is tried again by itself after an attempt was given up
	// by its deadline or by what passes by itself, such as a failover, unless the policy
	// sets it; 3, negative: never.
	Retries int
	// RetryWait is how long clients write undisturbed before the second attempt; it doubles
	// with each further one, up to a minute. 5 s.
	RetryWait time.Duration
	// Checks are asked before what cannot be taken back easily; nil: there are none.
	Checks Checks
	// Position returns where the changes of a version's database are now, for the sync of
	// the rollback (upgradestate.Switch.Position); nil: it is not known.
	Position func(ctx context.Context, version string) (string, error)
	// Target looks for what others change in the target during a switch; nil: nobody looks.
	Target Target
	// Forecaster looks ahead at the switch; nil: nothing is known of it beforehand.
	Forecaster Forecaster
	// Publish shows what stands between an upgrade and its switch; nil: it is not shown.
	Publish Publisher
	// Waits returns, at any time, what else keeps a switch from beginning; nil: nothing does.
	Waits func() []upgradestate.Blocker
	// Marks are called with what a switch is about to decide, before it does; nil: there
	// are none.
	Marks Marks
	// Tracer makes a span of each attempt at a switch, and one in it of each step; nil makes
	// none.
	Tracer trace.Tracer
	// News signals that the checks or the forecaster may have another result now; nil: the
	// driver looks every second.
	News <-chan struct{}
}

// Checks are conditions of a switch that the record does not hold.
type Checks interface {
	// BeforeSwitch returns all that blocks SWITCHING, for people: what it is, and what
	// to do. It is asked when all shards are ready, again and again until it is nothing.
	BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error
	// BeforeSeal is asked when everything is drained, the last moment at which the
	// application loses nothing but time. An error aborts the switch.
	// One that wraps ErrPasses is tried again as the policy sets it, any other is for a
	// person.
	BeforeSeal(ctx context.Context, d upgradestate.Deployment) error
}

// Target looks at the target of a switch for changes that nobody of ours has made. Engines do so
// until a switch begins.
type Target interface {
	// Since returns a place in the changes of a version's database that lies before the switch
	// (upgradestate.Upgrade.TargetSince).
	Since(ctx context.Context, version string) (string, error)
	// Changed is called in StepSealSource, at least once. The function that it returns, unless
	// that is nil, is called with everything confirmed, before the flip: it returns ErrIntruded,
	// with the names, when something of what changed differs from the source.
	Changed(ctx context.Context, d upgradestate.Deployment) (differ func(context.Context, upgradestate.Deployment) error, err error)
}

// ErrIntruded means that others have changed the target of a switch while it ran.
var ErrIntruded = errors.New("the target was changed")

// ErrPasses means that what a Checks found will pass by itself, such as a database that
// does not answer now.
var ErrPasses = errors.New("it passes by itself")

// Preparer is a Checks that changes something for a switch. It is asked last, once nothing
// blocks SWITCHING, and again if that did not begin after all; an error keeps it
// from beginning.
type Preparer interface {
	PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error
}

// Marks keep what a switch decides where its data are, for the day when the Deployment is
// lost. They may be called again with the same.
type Marks interface {
	// BeforeFlip is called in StepSealSource, and the flip is not tried before it returned
	// nil.
	BeforeFlip(ctx context.Context, d upgradestate.Deployment) error
	// BeforeAbort is called in StepAbort, and nothing is given back before it returned nil.
	// It must not wait for the target.
	BeforeAbort(ctx context.Context, d upgradestate.Deployment) error
}

// Driver drives one deployment's upgrades.
type Driver struct {
	deployments Deployments
	fencers     map[string]record.Fencer // by version
	cfg         Config
	log         *zap.Logger

	watch <-chan upgradestate.Deployment
	ahead *upgradestate.Deployment // taken from watch while servers were waited for

	attempt      attempt
	attemptSince time.Time
	stepSince    time.Time
	step         upgradestate.Step
	span         trace.Span // of the attempt; nil: there is none
	failed       failure
	millis       map[string]int64
	looked       time.Duration                                        // that the latest look at the switch took
	readiness    *Readiness                                           // published last; nil: none
	trouble      error                                                // of the latest pass; nil: none
	said         bool                                                 // something was published, be it that there is none
	waits        reconcile.Complaint                                  // for what the switch waits: each reason is logged once
	marked       attempt                                              // for which Marks were called in its present step
	watched      attempt                                              // for which Config.Target has read what changed
	differ       func(context.Context, upgradestate.Deployment) error // what it has returned for that
	position     string                                               // of the target, since its seal in this attempt; empty: not known yet
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
	if cfg.Retries == 0 {
		cfg.Retries = 3
	}
	if cfg.RetryWait == 0 {
		cfg.RetryWait = 5 * time.Second
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.Tracer{}
	}
	return &Driver{deployments: d, fencers: fencers, cfg: cfg, log: log}
}

// Run drives until ctx ends. Errors are tried again with backoff; they never end it.
func (r *Driver) Run(ctx context.Context) error {
	r.watch, r.ahead = r.deployments.Watch(ctx), nil
	var d upgradestate.Deployment
	defer func() { r.traceAttempt(d, attempt{}, time.Now()) }() // a later driver has a span of its own
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	wait := time.NewTimer(0)
	defer wait.Stop()
	var failing reconcile.Complaint
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
			case <-r.cfg.News:
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
			if failing.News(fmt.Errorf("%s: %w", r.step, err)) {
				r.log.Warn("switch step will be tried again", zap.String("step", string(r.step)), zap.Error(err))
			}
			r.publishTrouble(ctx, d, err)
			again := retry.NextBackOff()
			if left := r.untilDeadline(d); left > 0 {
				again = min(again, left)
			}
			wait.Reset(again)
		default:
			retry.Reset()
			failing.Over()
			r.troubleOver(ctx, d)
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
			next, err = r.apply(ctx, d, r.giveUp(d, r.whyOverdue(d)))
		} else {
			next, err = r.once(ctx, d)
		}
		// What has moved nothing waits for others, or is outdated: the watch brings the
		// record that shows it.
		if err != nil || next.Revision <= d.Revision {
			return next, err
		}
		d = next
	}
}

// once does what the record asks for now, and returns the record that it led to.
func (r *Driver) once(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	bounded, cancel := context.WithTimeout(ctx, r.operationTimeout(d))
	defer cancel()
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepAbort {
		if err := r.mark(bounded, u, func(m Marks) error { return m.BeforeAbort(bounded, d) }); err != nil {
			return d, err
		}
	}
	begun := time.Now()
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
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepSealSource && !isFlip(actions) {
		// Next to the last renames it costs no time of its own.
		g.Go(func() error { r.locate(bounded, u.TargetVersion); return nil })
		g.Go(func() error { return r.look(bounded, d) })
		g.Go(func() error { return r.mark(bounded, u, func(m Marks) error { return m.BeforeFlip(bounded, d) }) })
	}
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepNone && !upgradestate.ReadyToSwitch(d) {
		g.Go(func() error { o := r.checkReadiness(bounded, d); r.publish(bounded, &o); return nil })
	} else if u == nil && len(actions) == 0 {
		g.Go(func() error { r.publish(bounded, nil); return nil })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	// What was confirmed counts even if another act failed, and with one write, however
	// many kinds there are. It is never outdated, so nothing else may go with it.
	var confirmed, others []upgradestate.Event
	for _, ev := range events {
		switch ev.(type) {
		case nil:
		case upgradestate.Confirmed, upgradestate.Prevented, upgradestate.Unfenced:
			confirmed = append(confirmed, ev)
		default:
			others = append(others, ev)
		}
	}
	r.logOperations(actions, events, time.Since(begun))
	if len(confirmed) > 1 {
		confirmed = []upgradestate.Event{upgradestate.Together{Events: confirmed}}
	}
	next := d
	for _, ev := range append(confirmed, others...) {
		applied, applyErr := r.apply(ctx, next, ev)
		if applyErr != nil {
			return next, errors.Join(err, applyErr)
		}
		next = applied
		if _, ended := ev.(upgradestate.Aborted); ended {
			r.unready(ctx, next)
		}
	}
	return next, err
}

func isFlip(actions []upgradestate.Action) bool {
	return slices.ContainsFunc(actions, func(a upgradestate.Action) bool { _, ok := a.(upgradestate.Flip); return ok })
}

// apply makes a transition. That it is outdated is no error: the watch brings the record
// that holds the reason.
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
