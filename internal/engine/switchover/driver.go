package switchover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Deployments is the driver's access to the Deployment.
type Deployments interface {
	// Apply makes one transition by compare-and-swap and returns the new record. It returns
	// upgradestate.ErrOutdated when the event no longer fits.
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	// Watch delivers the record and each later revision until ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// Held blocks until every registered server has acknowledged {id, attempt}, or ctx ends.
	Held(ctx context.Context, id string, attempt uint64) error
	// Parked counts the groups that are parked and not waived.
	Parked(ctx context.Context) (int, error)
}

// Config configures a driver. A zero value means the default that the field's comment gives.
type Config struct {
	// HoldTimeout is the time that servers have to acknowledge that they hold writes. Default 1 s.
	// The switch continues without a late server: the fence does not need it.
	HoldTimeout time.Duration
	// Policy is what the policy of an upgrade leaves out. A zero DeadlineMillis means 10 s, and zero
	// Retries mean 3. The driver retries after a passed deadline and after a cause that passes by
	// itself, such as a failover. Hold and MaxPauseMillis are ignored.
	Policy upgradestate.Policy
	// RetryWait is the time that clients write undisturbed before the second attempt. It doubles
	// for each further attempt, up to a minute. Default 5 s.
	RetryWait time.Duration
	// Checks run before each step that is hard to undo; nil: no checks.
	Checks Checks
	// Position returns the current change position of a version's database. The rollback's sync
	// starts there (upgradestate.Switch.Position). nil: unknown.
	Position func(ctx context.Context, version string) (string, error)
	// Target looks for changes by others in the target during a switch; nil: no such check.
	Target Target
	// Forecaster predicts the switch; nil: no prediction.
	Forecaster Forecaster
	// Publish shows the readiness report to operators; nil: not shown.
	Publish Publisher
	// Waits returns further blockers of a switch, from any goroutine at any time; nil: none. They are
	// published without an upgrade, too, since operators should not learn of them only then.
	Waits func() []upgradestate.Blocker
	// Marks store each decision of a switch in the databases before the driver makes it; nil: no
	// marks.
	Marks Marks
	// Tracer records a span for each attempt, with a child span for each step; nil: no spans.
	Tracer trace.Tracer
	// News signals that the checks or the forecaster may return a new result. nil: the driver
	// relies on its timer, which looks every second or less often.
	News <-chan struct{}
}

// Checks are conditions of a switch that the record does not hold.
type Checks interface {
	// BeforeSwitch returns everything that blocks SWITCHING, with advice for operators. The driver
	// calls it when all shards are ready, and repeats it until it returns nothing.
	BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error
	// BeforeSeal runs after the drain. It is the last moment at which an abort costs the
	// application only time. An error aborts the switch. The policy decides about a new attempt if
	// the error wraps ErrPasses; any other error needs an operator.
	BeforeSeal(ctx context.Context, d upgradestate.Deployment) error
}

// Target looks for changes in a switch's target that no process of this project made. Before a
// switch the engines do that themselves.
type Target interface {
	// Since returns a change position of a version's database from before the switch
	// (upgradestate.Upgrade.TargetSince).
	Since(ctx context.Context, version string) (string, error)
	// Changed reads up to the seal of each kind and waits for it. The driver may call it in
	// StepSealTarget, with seals that are only announced. It has a new result before each try of the flip. The
	// driver calls the returned function, unless it is nil, when everything is confirmed and before
	// the flip. That function returns ErrIntruded, with the names, if a changed record differs from
	// the source.
	Changed(ctx context.Context, d upgradestate.Deployment) (differ func(context.Context, upgradestate.Deployment) error, err error)
}

// ErrIntruded means that others changed the target while the switch ran. The driver gives up the
// attempt.
var ErrIntruded = errors.New("the target was changed")

// ErrPasses means that the cause will pass by itself, such as a database that does not answer now.
// The driver may try again.
var ErrPasses = errors.New("it resolves itself")

// Preparer is a Checks that also changes something for a switch. The driver calls it last, once
// nothing blocks SWITCHING. It calls it again if the switch did not begin after all. An error keeps
// the switch from beginning.
type Preparer interface {
	PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error
}

// Marks store in the databases which version holds the data, in case the Deployment is lost. The
// driver may repeat a call with the same record.
type Marks interface {
	// BeforeFlip runs in StepSealSource. The driver does not try the flip before it returns nil, and
	// calls it again before each further try.
	BeforeFlip(ctx context.Context, d upgradestate.Deployment) error
	// BeforeAbort runs in StepAbort. The driver gives nothing back to clients before it returns
	// nil. It must not wait for the target.
	BeforeAbort(ctx context.Context, d upgradestate.Deployment) error
}

// AheadMarks is a Marks that can read before the last step what its BeforeFlip begins with. The driver
// calls ReadAhead in StepSealTarget, once for an attempt, and waits for nothing of it. A failure shows
// in BeforeFlip.
type AheadMarks interface {
	ReadAhead(ctx context.Context, d upgradestate.Deployment) error
}

// Driver drives the upgrades of one deployment. New creates it. Only one Run at a time may use it.
type Driver struct {
	deployments Deployments
	fencers     map[string]record.Fencer // by version
	cfg         Config
	log         *zap.Logger

	watch <-chan upgradestate.Deployment
	ahead *upgradestate.Deployment // taken from watch during hold; Run uses it next

	attempt      attempt
	attemptSince time.Time
	stepSince    time.Time
	step         upgradestate.Step
	span         trace.Span // of the attempt; nil: none
	failed       failure
	millis       map[string]int64
	looked       time.Duration                                        // duration of the latest readiness check
	readiness    *Readiness                                           // last published; nil: none
	trouble      error                                                // error of the latest pass; nil: none
	said         bool                                                 // a report was published, even an empty one
	waits        reconcile.Complaint                                  // logs each new reason for waiting once
	aheadOf      attempt                                              // attempt that markAhead has begun for
	marked       attempt                                              // attempt whose Marks are written for the next try
	watched      attempt                                              // attempt whose target changes are read for the next try
	differ       func(context.Context, upgradestate.Deployment) error // result of Config.Target.Changed for it
	reading      *reading                                             // begun for this attempt; nil: none
	readers      sync.WaitGroup                                       // goroutines of readings
	position     string                                               // of the target since its seal in this attempt; empty: unknown
}

// attempt identifies one entry into SWITCHING. The zero value is none.
type attempt struct {
	id string
	n  uint64
}

// New returns a driver for the versions in fencers. It applies the defaults of cfg.
func New(d Deployments, fencers map[string]record.Fencer, cfg Config, log *zap.Logger) *Driver {
	if cfg.HoldTimeout == 0 {
		cfg.HoldTimeout = time.Second
	}
	cfg.Policy = cfg.Policy.Or(upgradestate.Policy{DeadlineMillis: 10_000, Retries: 3})
	if cfg.RetryWait == 0 {
		cfg.RetryWait = 5 * time.Second
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.Tracer{}
	}
	return &Driver{deployments: d, fencers: fencers, cfg: cfg, log: log}
}

// Run drives until ctx ends and returns ctx's error. It retries every other error with backoff.
func (r *Driver) Run(ctx context.Context) error {
	r.watch, r.ahead = r.deployments.Watch(ctx), nil
	defer r.readers.Wait() // in reverse order: end the read, then wait for it
	defer r.leaveReading()
	var d upgradestate.Deployment
	defer func() { r.traceAttempt(d, attempt{}, time.Now()) }() // a later driver starts its own span
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	wait := time.NewTimer(0)
	defer wait.Stop()
	var failing reconcile.Complaint
	for {
		// First use a record that hold took from the watch; the watch does not repeat it.
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
					continue // from this driver, or outdated
				}
				d = seen
			case <-wait.C:
				// Without a record there is nothing to drive yet.
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
			// Log each new error once: the driver may retry for hours.
			if failing.News(fmt.Errorf("%s: %w", r.step, err)) {
				r.log.Warn("a step of the switch failed and will be retried", zap.String("step", string(r.step)), zap.Error(err))
			}
			r.publishTrouble(ctx, d, err)
			again := retry.NextBackOff()
			// Do not sleep past the deadline: the abort is due then.
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

// drive proceeds from a record until it has to wait for others.
func (r *Driver) drive(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	for {
		r.observe(d)
		var next upgradestate.Deployment
		var err error
		// An attempt past its deadline must abort before any further action.
		if r.overdue(d) {
			next, err = r.apply(ctx, d, r.giveUp(d, r.whyOverdue(d)))
		} else {
			next, err = r.once(ctx, d)
		}
		// No progress: the driver waits for others, or its record is outdated. The watch delivers
		// the next one.
		if err != nil || next.Revision <= d.Revision {
			r.lookedInVain(d)
			return next, err
		}
		d = next
	}
}

// lookedInVain forgets the last looks at both databases before a flip that has not happened. Either
// database may be restored, or the target changed, before the next try.
func (r *Driver) lookedInVain(d upgradestate.Deployment) {
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepSealSource {
		r.marked, r.watched = attempt{}, attempt{}
	}
}

// once runs the actions that the record asks for, and returns the resulting record.
func (r *Driver) once(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	bounded, cancel := context.WithTimeout(ctx, r.operationTimeout(d))
	defer cancel()
	// An abort must be on record in the source before anything is given back to its clients.
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepAbort {
		if err := r.mark(bounded, u, func(m Marks) error { return m.BeforeAbort(bounded, d) }); err != nil {
			return d, err
		}
	}
	begun := time.Now()
	actions := upgradestate.Actions(d)
	events := make([]upgradestate.Event, len(actions)) // nil: no result
	var g errgroup.Group                               // one failing action does not cancel the others
	for i, a := range actions {
		g.Go(func() error {
			ev, err := r.act(bounded, d, a)
			if err == nil {
				events[i] = ev
			}
			return err
		})
	}
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepSealTarget {
		r.lookAhead(ctx, d)
		r.markAhead(ctx, d)
	} else if u != nil && u.Step == upgradestate.StepSealSource && !isFlip(actions) {
		// These run next to the last renames, so they add no time to the pause.
		g.Go(func() error { r.locate(bounded, u.TargetVersion); return nil })
		g.Go(func() error { return r.look(bounded, d) })
		g.Go(func() error { return r.mark(bounded, u, func(m Marks) error { return m.BeforeFlip(bounded, d) }) })
	}
	// Nothing to switch yet: report the blockers, or clear the report after the upgrade.
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepNone && !upgradestate.ReadyToSwitch(d) {
		g.Go(func() error { o := r.checkReadiness(bounded, d); r.publish(bounded, &o); return nil })
	} else if u == nil && len(actions) == 0 {
		g.Go(func() error { r.publish(bounded, r.idle()); return nil })
	}
	err := g.Wait()
	// ctx itself ended, so the results may be incomplete. The next driver resumes from the record.
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	// Store confirmed operations even if another action failed, in one write for any number of
	// kinds. Such events never become outdated, so no other event may share their write.
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
		// Only now is the attempt over; its preparations would hinder clients.
		if _, ended := ev.(upgradestate.Aborted); ended {
			r.unready(ctx, next)
		}
	}
	return next, err
}

// isFlip reports whether the flip is among the actions.
func isFlip(actions []upgradestate.Action) bool {
	return slices.ContainsFunc(actions, func(a upgradestate.Action) bool { _, ok := a.(upgradestate.Flip); return ok })
}

// apply makes a transition. An outdated event is no error: the watch delivers the record that
// replaced its condition.
func (r *Driver) apply(ctx context.Context, d upgradestate.Deployment, ev upgradestate.Event) (upgradestate.Deployment, error) {
	begun := time.Now()
	if _, ok := ev.(upgradestate.Flip); ok {
		// A commit that waits for the coordination store until after the deadline would rely on old
		// looks at both databases.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.operationTimeout(d))
		defer cancel()
	}
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
