package engines

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

// tellStopped publishes, for each shard of this controller, why its sync has stopped. The engine's
// last report, perhaps "ready", is no longer true, and no other process corrects it. If problem is
// nil, no sync is wanted, and tellStopped publishes an empty report.
func (r *Runner) tellStopped(ctx context.Context, problem error) {
	lease := r.Pool.Lease()
	if lease == 0 {
		return // the earlier report has expired with the lease
	}
	var ps []syncer.Progress
	if problem != nil {
		known, err := r.Deployments.Progress(ctx)
		if err != nil {
			r.Log.Warn("cannot publish that the sync of shards has stopped", zap.Error(err))
			return
		}
		ps = stoppedShards(r.cfg.ID, slices.Sorted(maps.Keys(r.Pool.Owned())), known, problem)
	} else if !r.engines.anyStopped() {
		return
	}
	if err := r.Deployments.PublishProgress(ctx, r.cfg.ID, ps, lease); err != nil {
		r.Log.Warn("cannot publish that the sync of shards has stopped", zap.Error(err))
		return // others still see the earlier report
	}
	r.engines.stop(ps)
}

// mostOfError and mostOfErrors limit, in bytes, the reason for one shard and for all shards of a
// controller. The reason ends with a command for the operator, so the limit is generous. An etcd
// request takes at most 1.5 MiB.
const (
	mostOfError  = 1000
	mostOfErrors = 600 << 10
)

// stoppedShards returns the progress of owned shards whose sync has stopped. Counts keep their last
// values, and the lag is unknown.
func stoppedShards(owner string, owned []int, known []syncer.Progress, problem error) []syncer.Progress {
	why := problem.Error()
	if most := min(mostOfError, mostOfErrors/max(1, len(owned))); len(why) > most {
		why = strings.ToValidUTF8(why[:most], "") + " ..."
	}
	ps := make([]syncer.Progress, 0, len(owned))
	for _, n := range owned {
		p := syncer.Progress{Shard: n}
		// Another owner's report is not about this controller's sync.
		if i := slices.IndexFunc(known, func(p syncer.Progress) bool { return p.Shard == n && p.Owner == owner }); i >= 0 {
			p = known[i]
		}
		p.Owner, p.State, p.Rate, p.LagMillis = owner, syncer.StateStopped, 0, nil
		p.WaitsFor = fmt.Sprintf("the sync, which has stopped and is retried every %v: %s", retry, why)
		p.Code, p.Version, p.LastError = upgradestate.BlockController, "", "" // see WaitsFor
		p.Pace, p.PaceCause = "", ""
		ps = append(ps, p)
	}
	return ps
}
