package vrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Controller is background work of a version, such as a reconciler or a janitor. It is part of the
// version's Stack. It runs while that version is active and accepts writes.
type Controller struct {
	Name string // unique within its stack
	// Run works until ctx ends. It reads and writes through the views of its version. After an
	// error or a panic the Runner calls it again, with a growing pause. After a nil return it does
	// not run again until the next switch.
	//
	// When a switch begins, ctx ends with the cause ErrEnded. A write in progress finishes. Later
	// writes fail with ErrEnded. After the flip the other version's controllers start. After an
	// abort these controllers start again.
	Run func(ctx context.Context) error
	// Leader makes Config.Lead elect one server at a time to run the controller. If it is false,
	// every server runs it. The election only saves work, and two leaders may overlap for a moment.
	// An effect that must happen once therefore needs a condition on a record (Mutation.Match).
	Leader bool
}

// ErrEnded is the cause that ends a controller's context at a switch, and the error of its later
// writes. The write had no effect.
var ErrEnded = fmt.Errorf("a switch has ended the controller's run: %w", record.ErrFenced)

const (
	// stopWait is the longest wait for ended controllers before the next ones start. The Runner
	// counts the ones that continue, and the database refuses their writes.
	stopWait = 3 * time.Second
	// steady is the running time after which a failure counts as the first one again.
	steady = time.Minute
)

// term is one period in which the controllers of a version run.
type term struct {
	version string
	epoch   uint64
	end     context.CancelCauseFunc
	over    atomic.Bool // set before the gate lets writes of another term pass
}

// ControllerCount counts the controllers of this process.
type ControllerCount struct {
	Running  int   // running now
	Overdue  int   // of those, the ones that did not stop in time
	Restarts int64 // restarts after errors and panics
}

// Controllers returns the counts for this process.
func (r *Runner) Controllers() ControllerCount {
	return ControllerCount{
		Running: int(r.running.Load()), Overdue: int(r.overdue.Load()), Restarts: r.restarts.Load(),
	}
}

// checkControllers refuses controllers that could never run.
func (r *Runner) checkControllers() error {
	for version, stack := range r.stacks {
		names := map[string]bool{}
		for _, c := range stack.Controllers {
			switch {
			case c.Name == "" || c.Run == nil:
				return fmt.Errorf("a controller of %s needs a name and Run", version)
			case names[c.Name]:
				return fmt.Errorf("two controllers of %s are called %s", version, c.Name)
			case c.Leader && r.cfg.Lead == nil:
				return fmt.Errorf("controller %s of %s runs on one server: Config.Lead is needed", c.Name, version)
			}
			names[c.Name] = true
		}
	}
	return nil
}

// working returns the version whose controllers may run under the present record. The caller holds
// r.mu.
func (r *Runner) working() (version string, epoch uint64, ok bool) {
	d := r.record
	_, places := upgradestate.WritePlaces(d)
	return d.CurrentVersion, d.Epoch, r.serves(d) == nil && len(places) > 0 && !r.starting()
}

// endTerm ends the current term if the present record no longer allows it. The caller holds r.mu
// and has not updated the gate yet. So a write that passes the gate later finds the term over.
func (r *Runner) endTerm() {
	if r.term == nil {
		return
	}
	if version, epoch, ok := r.working(); ok && version == r.term.version && epoch == r.term.epoch {
		return
	}
	// over comes first: a controller that sees its context end must not write any more.
	r.term.over.Store(true)
	r.term.end(ErrEnded)
	r.term = nil
}

// control runs the controllers of the active version, one term after the other.
func (r *Runner) control(ctx context.Context) error {
	for {
		working, t, err := r.beginTerm(ctx)
		if err != nil {
			return err
		}
		r.work(working, t)
	}
}

// beginTerm waits until controllers may run and begins their term. It reads the record
// linearizably, so that a late server does not start the previous version's controllers.
func (r *Runner) beginTerm(ctx context.Context) (context.Context, *term, error) {
	retry := newRetry()
	for {
		r.mu.Lock()
		version, _, ok := r.working()
		news := r.news
		r.mu.Unlock()
		// Only a newer record can change this, so there is nothing to ask etcd for.
		if !ok || len(r.stacks[version].Controllers) == 0 {
			select {
			case <-news:
				continue
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		d, err := r.deployments.Get(ctx)
		if err != nil {
			if pause(ctx, retry.NextBackOff()); ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			continue
		}
		// The read can bring a switch that the watch has not delivered yet. accept notes it first.
		r.accept(d)
		r.mu.Lock()
		version, epoch, ok := r.working()
		// The term and the decision share one lock. Otherwise endTerm could miss the new term.
		if ok {
			t := &term{version: version, epoch: epoch}
			working, end := context.WithCancelCause(ctx)
			t.end, r.term = end, t
			r.mu.Unlock()
			return working, t, nil
		}
		r.mu.Unlock()
	}
}

// work runs the controllers of a term until it ends, and then waits for them for a limited time.
func (r *Runner) work(ctx context.Context, t *term) {
	defer t.end(nil)
	var mu sync.Mutex
	late := false
	going := map[string]bool{}
	var all sync.WaitGroup
	for _, c := range r.stacks[t.version].Controllers {
		going[c.Name] = true
		r.running.Add(1)
		all.Go(func() {
			r.repeat(ctx, t, c)
			// A controller that stops later still finds late set, and corrects the count.
			mu.Lock()
			defer mu.Unlock()
			delete(going, c.Name)
			r.running.Add(-1)
			if late {
				r.overdue.Add(-1)
			}
		})
	}
	// A switch must not depend on user code, so the wait for it is limited.
	<-ctx.Done()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		all.Wait()
	}()
	select {
	case <-stopped:
		return
	case <-time.After(stopWait):
	}
	mu.Lock()
	defer mu.Unlock()
	late = true
	for name := range going {
		r.overdue.Add(1)
		r.log.Warn("controller does not stop; it is not waited for any longer", slog.String("version", t.version),
			slog.String("controller", name), slog.Duration("waited", stopWait))
	}
}

// repeat runs one controller until it returns nil or the term ends.
func (r *Runner) repeat(ctx context.Context, t *term, c Controller) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		start := time.Now()
		err := r.runController(ctx, t, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		// A long successful run must not inherit the long pauses of earlier failures.
		if time.Since(start) >= steady {
			retry.Reset()
		}
		wait := retry.NextBackOff()
		r.restarts.Add(1)
		fields := []any{
			slog.String("version", t.version), slog.String("controller", c.Name), slog.Duration("again in", wait), slog.Any("error", err),
		}
		if p := new(panicError); errors.As(err, &p) {
			fields = append(fields, slog.String("stack", string(p.stack)))
		}
		r.log.Warn("controller failed", fields...)
		if pause(ctx, wait); ctx.Err() != nil {
			return
		}
	}
}

func (r *Runner) runController(ctx context.Context, t *term, c Controller) error {
	run := func(ctx context.Context) (err error) {
		// A panic in one controller must not end the server.
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		return c.Run(context.WithValue(ctx, requestKey{}, &request{version: t.version, epoch: t.epoch, term: t}))
	}
	if !c.Leader {
		return run(ctx)
	}
	// Each epoch has its own election, so that a late server of an earlier epoch blocks no other.
	return r.cfg.Lead(ctx, fmt.Sprintf("%s/%d/%s", t.version, t.epoch, c.Name), func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		<-ctx.Done() // keeps the leadership, so that no other server repeats finished work
		return nil
	})
}

// panicError is the error of a controller that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// writeControlled is Write for a controller. Each write passes the gate separately.
func (v *View) writeControlled(ctx context.Context, t *term, ms []record.Mutation) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// A controller's write has no request body, so it holds no bytes at the gate.
	p, err := v.runner.gate.enter(ctx, 0)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	err = func() error {
		defer p.leave() // also when the client panics
		return v.writeWith(ctx, p, t, ms)
	}()
	if errors.Is(err, record.ErrFenced) && !errors.Is(err, ErrEnded) {
		// The server has missed a switch. The write is based on stale reads, so it is not retried.
		// To wait for the newer record spares the controller attempts that must fail.
		bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
		defer cancel()
		_ = v.runner.newer(bounded, p.revision) // the error at hand has more detail
	}
	return err
}

func (v *View) writeWith(ctx context.Context, p *pass, t *term, ms []record.Mutation) error {
	switch {
	// Checked after the gate: the record can change while the write waits there.
	case t.over.Load() || p.version != t.version:
		return ErrEnded
	case p.version != v.version:
		return fmt.Errorf("write to %s: version %s is active", v.version, p.version)
	}
	// The switch waits for this write as for a request's write. So ErrEnded must not cancel it: an
	// interrupted write has an unknown outcome.
	sending, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, ErrEnded) {
			cancel(cause)
		}
	})
	defer stop()
	return v.client.Write(sending, p.tokens, ms)
}
