// Package rollouts carries out rollouts: one upgrade over many deployments, in waves. Package rollout
// decides; this package reads, stores and acts. It has two parts:
//
//   - The driver looks at the deployments of a wave and stores the next state of the rollout. One
//     process drives at a time, while a rollout needs it. If two overlap, compare-and-swap on the
//     rollout's record keeps them apart.
//   - An executor in each controller begins, aborts and rolls back upgrades of its own deployment, as
//     the stored orders say. Each act is one transaction that also compares the revisions of the
//     rollout and of the deployment. So nothing begins after a rollout was stopped, and nothing begins
//     twice.
//
// Begin to read at Runner.Run.
//
// It is not for users and may change with any version.
package rollouts

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
)

// Acts begins and aborts upgrades of this controller's deployment, under conditions.
// deployment.ErrOwnership means that a condition does not hold.
type Acts interface {
	BeginFor(ctx context.Context, id, target, by string, conditions ...coord.Condition) error
	AbortFor(ctx context.Context, id, reason, by string, conditions ...coord.Condition) error
}

// Config configures a Runner.
type Config struct {
	ID       string // of this controller
	Coord    coord.Store
	Store    *deployment.Store    // of this controller's deployment
	Rollouts *deployment.Rollouts // shared by the controllers of a process
	Acts     Acts
	Checks   map[string]Check // by name
	// NoWayBack returns why a version would not follow after a switch, so that nothing could roll
	// back to it. "" means that nothing is known against it. Nil: not checked.
	NoWayBack func(version string) string
	// Look is the time between two looks at a wave. 0: DefaultLook.
	Look time.Duration
	Log  *zap.Logger
}

// DefaultLook is the time between two looks at the deployments of a wave.
const DefaultLook = 2 * time.Second

// Runner carries out rollouts in one controller.
type Runner struct{ Config }

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.Look == 0 {
		cfg.Look = DefaultLook
	}
	return &Runner{cfg}
}

// Run works until ctx ends. Without a rollout it only waits.
func (r *Runner) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.execute(ctx) })
	g.Go(func() error { return r.coordinate(ctx) })
	return g.Wait()
}
