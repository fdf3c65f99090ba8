// Package recordloop repeats one piece of a controller's work with each version of the Deployment
// record.
//
// It is not for users and may change with any version.
package recordloop

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/upgradestate"
)

// retry is the pause after a failure.
const retry = 10 * time.Second

// settle is the time after a switch in which Aside does no work. Servers then make the writes that
// they held.
const settle = 500 * time.Millisecond

// Record is the Deployment record.
type Record interface {
	// Watch returns the latest version of the record, and each later one, until ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Do is one piece of work. It returns the time after which it must be done again with the latest
// record; 0: not before the next version of the record.
type Do func(upgradestate.Deployment) (again time.Duration, err error)

// Follow calls do with each version of the record, until ctx ends. It calls do again with the
// latest record after a failure, or after the time that do returns.
func Follow(ctx context.Context, record Record, log *zap.Logger, do Do) error {
	return follow(ctx, record, log, do, nil)
}

// Aside is Follow for work on which no switch waits. While a switch holds writes, and shortly after
// it, each call would take processor time from the switch and from the held writes. So Aside then
// skips new versions of the record. A call that is due after a time is made all the same, because a
// switch can stand still.
func Aside(ctx context.Context, record Record, log *zap.Logger, do Do) error {
	var held time.Time // when the latest version of a switch was seen
	rest := func(_, now upgradestate.Deployment) bool {
		if !holds(now) {
			return false
		}
		held = time.Now()
		return true
	}
	return follow(ctx, record, log, func(d upgradestate.Deployment) (time.Duration, error) {
		if left := settle - time.Since(held); left > 0 && !holds(d) {
			return left, nil
		}
		return do(d)
	}, rest)
}

// holds reports whether a switch holds writes.
func holds(d upgradestate.Deployment) bool {
	_, places := upgradestate.WritePlaces(d)
	ns, _ := d.Namespace(d.CurrentVersion)
	return len(places) == 0 && len(ns.Kinds) > 0
}

func follow(ctx context.Context, record Record, log *zap.Logger, do Do, skip func(before, now upgradestate.Deployment) bool) error {
	once := retry // one repetition, for databases that open after the start
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(_ context.Context, d upgradestate.Deployment) (time.Duration, error) {
			again, err := do(d)
			if again == 0 {
				again, once = once, 0
			}
			return again, err
		},
		Same:  skip,
		Retry: retry,
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				log.Warn("work of the leader failed and will be retried", zap.Error(err), zap.Duration("in", retry))
			}
		},
	}
	return loop.Run(ctx, record.Watch(ctx))
}
