package vrunner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Controller is background work of a version: a reconciler, a janitor. It is part of the
// version's Stack, and runs while that version is active and writes pass.
type Controller struct {
	Name string // within its stack
	// Run works until ctx ends, and reads and writes through the views of its version. It
	// is called again, after a pause that grows, when it fails or panics. With nil it is
	// done until the next switch.
	//
	// When a switch begins, ctx ends with ErrEnded as its cause. A write that is on its way
	// then is finished; a later one is ErrEnded. After the flip the other version's
	// controllers are started, after an abort these again.
	Run func(ctx context.Context) error
	// Leader: one server at a time runs it, elected by Config.Lead. Otherwise every server
	// does. An election is for economy: now and then there are two for a moment, so what
	// must not be done twice is tied to a record (Mutation.Match).
	Leader bool
}

// ErrEnded is the cause with which a controller's context ends for a switch, and the error
// of what it writes afterwards. Nothing was written.
var ErrEnded = fmt.Errorf("a switch has ended the controller's run: %w", record.ErrFenced)

const (
	// stopWait is how long controllers that were ended are waited for before others are
	// started. Those that go on are counted; the database refuses what they write.
	stopWait = 3 * time.Second
	// steady is how long a controller must have run for its next failure to be a first one.
	steady = time.Minute
)

// term is one period in which the controllers of a version run.
type term struct {
	version string
	epoch   uint64
	end     context.CancelCauseFunc
	over    atomic.Bool // before the gate passes anything for another term
}

// ControllerCount is what became of the controllers of this process.
type ControllerCount struct {
	Running  int   // now
	Overdue  int   // of those: were ended, and did not stop in time
	Restarts int64 // after errors and panics
}

// Controllers counts the controllers of this process.
func (r *Runner) Controllers() ControllerCount {
	return ControllerCount{
		Running: int(r.running.Load()), Overdue: int(r.overdue.Load()), Restarts: r.restarts.Load(),
	}
}

// checkControllers refuses what could never run.
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

// working returns the version whose controllers may run by the present record. r.mu is
// held.
func (r *Runner) working() (version string, epoch uint64, ok bool) {
	d := r.record
	_, places := upgradestate.WritePlaces(d)
	return d.CurrentVersion, d.Epoch, r.serves(d) == nil && len(places) > 0 && !r.starting()
}

// endTerm ends the term that the present record leaves no room for. r.mu is held, and the
// gate is as before: a write that passes it later finds the term over.
func (r *Runner) endTerm() {
	if r.term == nil {
		return
	}
	if version, epoch, ok := r.working(); ok && version == r.term.version && epoch == r.term.epoch {
		return
	}
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

// beginTerm waits until controllers may run, by a linearizable read of the record: nobody
// starts those of the previous version without having noticed the change.
func (r *Runner) beginTerm(ctx context.Context) (context.Context, *term, error) {
	retry := newRetry()
	for {
		r.mu.Lock()
		version, _, ok := r.working()
		news := r.news
		r.mu.Unlock()
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
		r.accept(d)
		r.mu.Lock()
		version, epoch, ok := r.working()
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

// work runs the controllers of a term to its end, and waits a while for them.
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
			mu.Lock()
			defer mu.Unlock()
			delete(going, c.Name)
			r.running.Add(-1)
			if late {
				r.overdue.Add(-1)
			}
		})
	}
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
		r.log.Warn("controller does not stop; it is not waited for any longer", zap.String("version", t.version),
			zap.String("controller", name), zap.Duration("waited", stopWait))
	}
}

// repeat runs one controller until it is done, or the term over.
func (r *Runner) repeat(ctx context.Context, t *term, c Controller) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		start := time.Now()
		err := r.runController(ctx, t, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(start) >= steady {
			retry.Reset()
		}
		wait := retry.NextBackOff()
		r.restarts.Add(1)
		fields := []zap.Field{
			zap.String("version", t.version), zap.String("controller", c.Name), zap.Duration("again in", wait), zap.Error(err),
		}
		if p := new(panicError); errors.As(err, &p) {
			fields = append(fields, zap.ByteString("stack", p.stack))
		}
		r.log.Warn("controller failed", fields...)
		if pause(ctx, wait); ctx.Err() != nil {
			return
		}
	}
}

func (r *Runner) runController(ctx context.Context, t *term, c Controller) error {
	run := func(ctx context.Context) (err error) {
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
	// A name of its own for each epoch: a server that is late holds up no other.
	return r.cfg.Lead(ctx, fmt.Sprintf("%s/%d/%s", t.version, t.epoch, c.Name), func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		<-ctx.Done() // it is done: nobody else needs to
		return nil
	})
}

// panicError is what a controller panicked with.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// writeControlled is Write for a controller. It passes the gate for each write.
func (v *View) writeControlled(ctx context.Context, t *term, ms []record.Mutation) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
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
		// This server has missed something. What is to be written is stale, so it is not sent
		// again; but its controller should not try in vain.
		bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
		defer cancel()
		_ = v.runner.newer(bounded, p.revision) // the error at hand has more detail
	}
	return err
}

func (v *View) writeWith(ctx context.Context, p *pass, t *term, ms []record.Mutation) error {
	switch {
	case t.over.Load() || p.version != t.version:
		return ErrEnded
	case p.version != v.version:
		return fmt.Errorf("write to %s: version %s is active", v.version, p.version)
	}
	// The switch waits for it as for a request's, so it is not cut off by the switch.
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
