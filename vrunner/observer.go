package vrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/refusal"
)

// Observer is work that follows the records of one API version, whichever version is active. It only
// reads. Package resource has one that sees changes (resource.Observer).
type Observer struct {
	Name string // unique within its API version
	// Run follows data, the records in the form of the Observer's API version, until ctx ends. After a
	// flip the Runner calls it again, over the data that is active then, once the former call has
	// returned. After an error or a panic it calls it again with a growing pause. After a nil return it
	// waits for the next flip.
	Run func(ctx context.Context, data Store) error
	// Leader makes Config.Lead elect one server at a time to run the Observer. That server keeps it
	// over flips. If it is false, every server runs it.
	Leader bool
}

// Observation is an Observer with its data while a stack is active.
type Observation struct {
	Observer
	Version string // the API version of the Observer
	Data    Store
}

func (o Observation) key() string { return o.Version + "/" + o.Name }

// observations returns the keys of all observers, and which of them run on one server.
func (r *Runner) observations() (map[string]bool, error) {
	out := map[string]bool{}
	for version, stack := range r.stacks {
		seen := map[string]bool{}
		for _, o := range stack.Observers {
			switch {
			case o.Name == "" || o.Run == nil:
				return nil, fmt.Errorf("an observer of %s needs a name and Run", o.Version)
			case seen[o.key()]:
				return nil, fmt.Errorf("two observers of %s are called %s", o.Version, o.Name)
			case o.Leader && r.cfg.Lead == nil:
				return nil, fmt.Errorf("observer %s of %s runs on one server: Config.Lead is needed (stack of %s)", o.Name, o.Version, version)
			}
			seen[o.key()] = true
			out[o.key()] = o.Leader
		}
	}
	return out, nil
}

// observeUntil runs one observer until ctx ends, and then waits for it for a limited time: a server must
// stop whatever the observer does.
func (r *Runner) observeUntil(ctx context.Context, key string, leader bool) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = r.observe(ctx, key, leader) // it is that of ctx
	}()
	<-ctx.Done()
	select {
	case <-stopped:
	case <-time.After(stopWait):
		r.log.Warn("observer does not stop; it is not waited for any longer", slog.String("observer", key), slog.Duration("waited", stopWait))
	}
	return ctx.Err()
}

// observe runs one observer until ctx ends.
func (r *Runner) observe(ctx context.Context, key string, leader bool) error {
	for ctx.Err() == nil {
		news, err := r.nextRecord()
		if err == nil && leader {
			// The leader outlives flips: another server would see all records for the first time.
			_ = r.cfg.Lead(ctx, "observer/"+key, func(ctx context.Context) error { return r.repeatObserver(ctx, key) })
		} else if err == nil {
			_ = r.repeatObserver(ctx, key)
		}
		// This server cannot run it now, and does not lead any more. Only another record changes that.
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// repeatObserver runs an observer again and again, until ctx ends, or this server cannot serve its
// version under the present record.
func (r *Runner) repeatObserver(ctx context.Context, key string) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		start, itself := time.Now(), false
		err := r.Stream(ctx, func(ctx context.Context, version string) error {
			err := r.runObserver(ctx, version, key)
			itself = ctx.Err() == nil
			return err
		})
		if ctx.Err() != nil {
			break
		}
		// The refusal of another service that the observer has called counts as an ordinary failure. No
		// record of this deployment would end the wait for it.
		if !itself || unserved(err) {
			return err
		}
		if time.Since(start) >= steady {
			retry.Reset()
		}
		wait := retry.NextBackOff()
		fields := []any{slog.String("observer", key), slog.Duration("again in", wait), slog.Any("error", err)}
		if p := new(panicError); errors.As(err, &p) {
			fields = append(fields, slog.String("stack", string(p.stack)))
		}
		r.log.Warn("observer failed", fields...)
		pause(ctx, wait)
	}
	return ctx.Err()
}

// unserved reports whether a View has no data of its version yet, or none any more.
func unserved(err error) bool {
	answer, ok := refusal.In(err)
	if !ok {
		return false
	}
	reason, _ := refusal.Of(answer)
	return reason == refusal.VersionNotReady || reason == refusal.VersionRetired
}

// runObserver runs an observer while a version is active.
func (r *Runner) runObserver(ctx context.Context, version, key string) (err error) {
	at := slices.IndexFunc(r.stacks[version].Observers, func(o Observation) bool { return o.key() == key })
	// A panic in one observer must not end the server.
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	if at >= 0 {
		o := r.stacks[version].Observers[at]
		if err := o.Run(ctx, o.Data); err != nil {
			return err
		}
	}
	// It has ended, or the active version does not serve its version.
	<-ctx.Done()
	return context.Cause(ctx)
}

// nextRecord returns a channel that is closed when another record is there, and an error if this server
// cannot serve the present one.
func (r *Runner) nextRecord() (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news, r.serves(r.record)
}
