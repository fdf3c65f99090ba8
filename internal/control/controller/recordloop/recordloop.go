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

// Record is the Deployment record.
type Record interface {
	// Watch returns the latest version of the record, and each later one, until ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Follow calls do with each version of the record, until ctx ends. It calls do again with the
// latest record after a failure, or after the time that do returns.
func Follow(ctx context.Context, record Record, log *zap.Logger, do func(upgradestate.Deployment) (again time.Duration, err error)) error {
	once := retry // one repetition, for databases that open after the start
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(_ context.Context, d upgradestate.Deployment) (time.Duration, error) {
			again, err := do(d)
			if again == 0 {
				again, once = once, 0
			}
			return again, err
		},
		Retry: retry,
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				log.Warn("work of the leader failed and will be retried", zap.Error(err), zap.Duration("in", retry))
			}
		},
	}
	return loop.Run(ctx, record.Watch(ctx))
}
