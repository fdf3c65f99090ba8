package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// tellStopped publishes for each shard of this controller why its sync has stopped. What its
// engine published last, "ready" perhaps, is no longer true, and nobody else corrects it. With no
// problem, because nothing is asked for any more, it publishes that nothing is known.
func (a *App) tellStopped(ctx context.Context, problem error) {
	lease := a.pool.Lease()
	if lease == 0 {
		return // what was published has gone with it
	}
	var ps []syncer.Progress
	if problem != nil {
		known, err := a.deployment.Progress(ctx)
		if err != nil {
			a.log.Warn("shards do not say that their sync has stopped", zap.Error(err))
			return
		}
		ps = stoppedShards(a.opts.ID, slices.Sorted(maps.Keys(a.pool.Owned())), known, problem)
	} else if !a.engines.anyStopped() {
		return
	}
	if err := a.deployment.PublishProgress(ctx, a.opts.ID, ps, lease); err != nil {
		a.log.Warn("shards do not say that their sync has stopped", zap.Error(err))
		return // others still see what was published before
	}
	a.engines.stop(ps)
}

// stop notes the progress that was published of shards whose sync has stopped.
func (e *engines) stop(stopped []syncer.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = stopped
}

func (e *engines) anyStopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.stopped) > 0
}

// mostOfError and mostOfErrors bound the reason in one shard and in all shards of a controller. The
// verb stands at its end, so it must not be cut off; and etcd takes 1.5 MiB at once.
const (
	mostOfError  = 1000
	mostOfErrors = 600 << 10
)

// stoppedShards is the progress of the owned shards once their sync has stopped. Counts stay as
// they were known; nothing is known of the lag.
func stoppedShards(owner string, owned []int, known []syncer.Progress, problem error) []syncer.Progress {
	why := problem.Error()
	if most := min(mostOfError, mostOfErrors/max(1, len(owned))); len(why) > most {
		why = strings.ToValidUTF8(why[:most], "") + " ..."
	}
	ps := make([]syncer.Progress, 0, len(owned))
	for _, n := range owned {
		p := syncer.Progress{Shard: n}
		if i := slices.IndexFunc(known, func(p syncer.Progress) bool { return p.Shard == n && p.Owner == owner }); i >= 0 {
			p = known[i]
		}
		p.Owner, p.State, p.Rate, p.LagMillis = owner, syncer.StateStopped, 0, nil
		p.WaitsFor = fmt.Sprintf("the sync, which has stopped and is tried every %v: %s", retryEngine, why)
		p.Code, p.Version, p.LastError = upgradestate.BlockController, "", "" // WaitsFor has it
		p.Pace, p.PaceCause = "", ""
		ps = append(ps, p)
	}
	return ps
}
