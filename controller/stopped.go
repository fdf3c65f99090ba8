package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// tellStopped publishes for each shard of this controller why its sync has stopped. What its
// engine published last, "ready" perhaps, is no longer true, and nobody else corrects it. With no
// problem, because nothing is asked for any more, it takes that back.
func (a *App) tellStopped(ctx context.Context, problem error) {
	lease := a.pool.Lease()
	if lease == 0 {
		return // what was published has gone with it
	}
	before := a.engines.stop(nil)
	if problem == nil && len(before) == 0 {
		return
	}
	var ps []syncer.Progress
	if problem != nil {
		known, err := a.deployment.Progress(ctx)
		if err != nil {
			a.log.Warn("shards do not say that their sync has stopped", zap.Error(err))
			return
		}
		ps = stoppedShards(a.opts.ID, slices.Sorted(maps.Keys(a.pool.Owned())), known, problem)
	}
	a.engines.stop(ps)
	if err := a.deployment.PublishProgress(ctx, a.opts.ID, ps, lease); err != nil {
		a.log.Warn("shards do not say that their sync has stopped", zap.Error(err))
	}
}

// stop notes the progress of shards whose sync has stopped, and returns what was noted before.
func (e *engines) stop(stopped []syncer.Progress) (before []syncer.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, e.stopped = e.stopped, stopped
	return before
}

// stoppedShards is the progress of the owned shards once their sync has stopped. Counts stay as
// they were known; nothing is known of the lag.
func stoppedShards(owner string, owned []int, known []syncer.Progress, problem error) []syncer.Progress {
	ps := make([]syncer.Progress, 0, len(owned))
	for _, n := range owned {
		p := syncer.Progress{Shard: n}
		if i := slices.IndexFunc(known, func(p syncer.Progress) bool { return p.Shard == n }); i >= 0 {
			p = known[i]
		}
		p.Owner, p.State, p.Rate, p.LagMillis = owner, syncer.StateStopped, 0, nil
		p.WaitsFor = fmt.Sprintf("the sync, which has stopped and is tried every %v: %v", retryEngine, problem)
		p.Code, p.Version, p.LastError = upgradestate.BlockController, "", problem.Error()
		p.Pace, p.PaceCause = "", ""
		ps = append(ps, p)
	}
	return ps
}
