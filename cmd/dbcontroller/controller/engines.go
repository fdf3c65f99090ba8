package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

// engines holds the engine that runs now, and why there is none or the last one ended.
type engines struct {
	mu      sync.Mutex
	now     *syncer.Engine
	problem error
}

func (e *engines) set(now *syncer.Engine, problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.problem = now, problem
}

func (e *engines) ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *engines) progress() []syncer.Progress {
	e.mu.Lock()
	now := e.now
	e.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.Progress()
}

// retryEngine is how long a failed engine rests. Failures that trying again cures are
// handled inside it; what ends it needs a person, and is said once each time.
const retryEngine = 10 * time.Second

// sync runs the engine of the direction that the record asks for, one after another.
func (a *App) sync(ctx context.Context) error {
	for {
		d, to, err := a.awaitDirection(ctx)
		if err != nil {
			return err
		}
		err = a.runEngine(ctx, d, to)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.engines.set(nil, err)
		if errors.Is(err, syncer.ErrOtherTransform) {
			return fmt.Errorf("%w: run the same binary and lenses everywhere", err)
		}
		if err == nil {
			continue
		}
		a.log.Error("sync has stopped and is tried again", zap.String("version", to), zap.Error(err), zap.Duration("in", retryEngine))
		rest := time.NewTimer(retryEngine)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// awaitDirection waits for a record that asks for a sync. Meanwhile, with no engine to do
// it, it lets go of the shards that other controllers shall have.
func (a *App) awaitDirection(ctx context.Context) (d upgradestate.Deployment, to string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := a.deployment.Watch(watching)
	for {
		for _, n := range a.pool.Leaving() {
			if err := a.pool.Release(ctx, n); err != nil {
				return d, "", fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		select {
		case <-ctx.Done():
			return d, "", ctx.Err()
		case d = <-watch:
			if to, ok := a.target(d); ok && d.Name != "" {
				return d, to, nil
			}
			a.engines.set(nil, nil)
		case <-a.pool.Changes():
		}
	}
}

func (a *App) runEngine(ctx context.Context, d upgradestate.Deployment, to string) error {
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return err
	}
	source, target := a.namespaces[d.CurrentVersion], a.namespaces[to]
	if source == nil || target == nil {
		return fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	e := syncer.New(syncer.Parts{
		Source: source, Target: target, Direction: dir, Deployments: a.deployment, Journal: a.deployment,
		Ownership: a.pool, Comparer: verify.New(source, target, dir), Lease: a.pool.Lease, Log: a.log,
	}, syncer.Config{
		Owner: a.opts.ID, Epoch: d.Epoch, Ring: d.RingSize, Workers: a.cfg.Copy.Workers, MaxRate: a.cfg.Copy.MaxRate,
		Copy: a.cfg.Copy.Auto,
	})
	a.engines.set(e, nil)
	err = e.Run(ctx)
	if errors.Is(err, record.ErrHistoryLost) {
		return fmt.Errorf("%w: the oplog of the source no longer reaches back to the checkpoint; enlarge it, then remove and create the new namespace", err)
	}
	return err
}
