package status

import (
	"fmt"
	"math"
	"slices"
	"strings"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/backfill"
	ring "dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func progressStatus(s deployment.State, own []upgradestate.Blocker) *pb.Progress {
	out := &pb.Progress{}
	byShard := map[int]syncer.Progress{}
	for _, p := range s.Progress {
		byShard[p.Shard] = p
	}
	switching := s.Record.Upgrade != nil && s.Record.Upgrade.State == upgradestate.Switching
	var lag int64
	// The lag is known only if every shard reports one.
	copying, lagKnown := false, len(byShard) == s.Record.RingSize
	for shard := range s.Record.RingSize {
		p, ok := byShard[shard]
		if !ok {
			out.Shards = append(out.Shards, &pb.ShardProgress{Shard: int32(shard), State: "waiting", WaitsFor: "a controller"})
			continue
		}
		out.Copied += p.Copied
		out.Total += p.Total
		out.Rate += p.Rate
		out.Applied += p.Applied
		out.Parked += p.Parked
		out.Retries += p.Retries
		out.Verified += p.Verified
		out.Mismatched += p.Mismatched
		out.LateDeletes += p.LateDeletes
		switch {
		case p.LagMillis == nil:
			lagKnown = false
		case *p.LagMillis > lag:
			lag = *p.LagMillis
		}
		// One error is enough; 'get' shows those of all shards.
		if out.LastError == "" && p.LastError != "" {
			out.LastError = fmt.Sprintf("shard %d: %s", shard, p.LastError)
		}
		copying = copying || p.Copied < p.Total
		if p.WaitsFor == syncer.ForSwitch && !switching {
			p.WaitsFor = "" // the switch is over, and the shard has not reported since
		}
		out.Shards = append(out.Shards, &pb.ShardProgress{
			Shard: int32(p.Shard), Owner: p.Owner, State: p.State, Copied: p.Copied, Total: p.Total, Rate: p.Rate,
			LagMillis: p.LagMillis, Applied: p.Applied, Parked: p.Parked, Retries: p.Retries, Verified: p.Verified,
			Mismatched: p.Mismatched, LateDeletes: p.LateDeletes, WaitsFor: p.WaitsFor, LastError: p.LastError, Pace: p.Pace,
		})
	}
	out.ReportingShards = int32(len(byShard))
	if lagKnown {
		out.MaxLagMillis = &lag
	}
	out.EtaSeconds = eta(out, copying, len(byShard) == s.Record.RingSize)
	out.WaitsFor = waitsFor(s, own, out.Shards)
	return out
}

// eta returns the seconds that the copy still needs. It is nil if nothing moves or a shard does not
// report.
func eta(p *pb.Progress, copying, complete bool) *int64 {
	var seconds int64
	switch {
	case !complete:
		return nil
	case !copying:
	case p.Rate <= 0:
		return nil
	default:
		seconds = int64(math.Ceil(float64(p.Total-p.Copied) / p.Rate))
	}
	return &seconds
}

// waitsFor lists the conditions that the upgrade, or the copy before one, still needs.
func waitsFor(s deployment.State, own []upgradestate.Blocker, shards []*pb.ShardProgress) (waits []string) {
	for _, b := range own {
		waits = append(waits, b.Text)
	}
	// Nothing is synced, so shards wait for nothing.
	if s.Record.Upgrade == nil && len(deployment.Directions(s.Record)) == 0 {
		return waits
	}
	if len(s.Controllers) == 0 {
		waits = append(waits, "a controller: none is running")
	}
	if late := notHolding(s); late.Text != "" {
		waits = append(waits, late.Text)
	}
	for _, ns := range s.Record.Namespaces {
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				waits = append(waits, fmt.Sprintf("%s of %s (%s) from %s to %s to be confirmed", k.Pending.Reason, k.Kind, ns.Version, k.Pending.From, k.Pending.To))
			}
		}
	}
	if u := s.Record.Upgrade; u != nil && u.State == upgradestate.InitialSyncing && upgradestate.AllReady(s.Record) {
		// Pending operations are in the list already.
		if why := upgradestate.SwitchBlocker(s.Record); why != "" && !strings.HasPrefix(why, "an earlier operation") {
			waits = append(waits, why)
		}
	}
	if s.Record.Upgrade == nil && len(s.Progress) == 0 {
		return waits // nothing is copied before an upgrade begins
	}
	return append(waits, shardsWaitFor(shards)...)
}

// shardsWaitFor combines the shards that wait for the same thing.
func shardsWaitFor(shards []*pb.ShardProgress) []string {
	var texts []string
	who := map[string][]int{}
	// Keep the order of the shards, so that the list is stable between calls.
	for _, p := range shards {
		if p.WaitsFor == "" {
			continue
		}
		if who[p.WaitsFor] == nil {
			texts = append(texts, p.WaitsFor)
		}
		who[p.WaitsFor] = append(who[p.WaitsFor], int(p.Shard))
	}
	var waits []string
	for _, text := range texts {
		switch {
		case len(who[text]) == len(shards):
			waits = append(waits, "all shards: "+text)
		case len(who[text]) == 1:
			waits = append(waits, fmt.Sprintf("shard %d: %s", who[text][0], text))
		default:
			waits = append(waits, "shards "+ring.Ranges(who[text])+": "+text)
		}
	}
	return waits
}

// heldBack returns the reasons why controllers hold back bulk work, each once.
func heldBack(ps []syncer.Progress, paused bool) []string {
	if paused {
		return nil // the pace shows it, with the reason
	}
	var reasons []string
	for _, p := range ps {
		if strings.HasPrefix(p.Pace, "paused") {
			continue // resumed since
		}
		if p.Pace != "" && !slices.Contains(reasons, p.Pace) {
			reasons = append(reasons, p.Pace)
		}
	}
	return reasons
}

func updateStatus(u *upgradestate.Update) *pb.DataUpdate {
	if u == nil {
		return nil
	}
	out := &pb.DataUpdate{
		Id: u.ID, Name: u.Name, Version: u.Version, Kind: u.Kind,
		DoneShards: clamp(int64(len(u.Done))), Seen: u.Count.Seen, Changed: u.Count.Changed,
	}
	if u.Key != "" {
		out.Key, out.DoneKinds, out.Kinds = u.Key, clamp(int64(u.Step)), clamp(int64(u.Step+1+len(u.Rest)))
	}
	return out
}

// addUpdating adds the controllers' published progress to the status of a data update. It covers
// the unfinished shards, and what the controllers wait for.
func addUpdating(out *pb.DataUpdate, u *upgradestate.Update, ps []backfill.Progress) {
	failed, example := u.Count.Failed, u.Example
	shards := map[int]backfill.ShardProgress{}
	var says []string
	for _, p := range ps {
		// Ignore progress of an earlier run.
		if p.ID != u.Run() {
			continue
		}
		// Controllers may know the total at different times; show the largest.
		out.Total = max(out.Total, p.Total)
		for _, text := range []string{p.Waits, p.Problem} {
			if text != "" && !slices.Contains(says, text) {
				says = append(says, text)
			}
		}
		for _, sp := range p.Shards {
			// The record already counts finished shards; counting them here would count them twice.
			if !slices.Contains(u.Done, sp.Shard) {
				shards[sp.Shard] = sp
			}
		}
	}
	for _, sp := range shards {
		out.Seen += sp.Count.Seen
		out.Changed += sp.Count.Changed
		failed += sp.Count.Failed
		if example == "" {
			example = sp.Example
		}
	}
	if failed > 0 {
		says = append([]string{fmt.Sprintf("%d records failed, such as %s", failed, example)}, says...)
	}
	out.LastError = strings.Join(says, "; ")
}
