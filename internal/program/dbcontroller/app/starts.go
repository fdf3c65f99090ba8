package app

import (
	"context"

	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/upgradestate"
)

// startsAtOnce is the number of deployments of a Fleet that start at the same time. A start reads and
// creates collections, and lasts less than a second. All of 200 at once make the database and etcd so
// slow that leases run out before a deployment follows, and its start begins again.
const startsAtOnce = 8

// starts admits the starts of a Fleet's deployments, in the order of their calls.
type starts struct{ places *semaphore.Weighted }

func newStarts() starts { return starts{semaphore.NewWeighted(startsAtOnce)} }

// admit waits until a deployment may start, and returns how it makes room for the next one. It does not
// wait with a running upgrade: its switch may hold writes, and only a running controller completes
// or aborts it. record reads the Deployment record.
func (s starts) admit(ctx context.Context, record func(context.Context) (upgradestate.Deployment, error)) (leave func(), err error) {
	// Without a record there is no upgrade. Without etcd the start itself has to wait.
	if d, err := record(ctx); err == nil && d.Upgrade != nil {
		return func() {}, nil
	}
	if err := s.places.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { s.places.Release(1) }, nil
}
