package status

import (
	"fmt"
	"slices"
	"strings"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/switchover"
	ring "dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The driver knows the reasons in the record and the databases, each owner those of its shards, and
// the answering process its own. A caller gets all of them in one list. An empty list requires that
// every shard has reported and the driver has looked.

// readinessStatus returns the conditions that an upgrade still needs for its switch, or a switch
// for its end. It ignores the readiness of another upgrade. Without an upgrade, it returns only the
// work that remains after the latest one.
func readinessStatus(s deployment.State, own []upgradestate.Blocker) *pb.SwitchReadiness {
	o, d := s.Readiness, s.Record
	// Without an upgrade, only readiness that belongs to none is current.
	if d.Upgrade == nil {
		if o == nil || o.ID != "" {
			return nil
		}
	} else if o == nil || o.ID != d.Upgrade.ID {
		o = &switchover.Readiness{} // the driver has not published anything about it
	}
	out := &pb.SwitchReadiness{PredictedPauseMillis: o.PredictedPauseMillis, Rollback: o.Rollback, At: o.At}
	if len(o.PredictedMillis) > 0 {
		out.PredictedMillis = clampEach(o.PredictedMillis)
	}
	for _, b := range blockers(s, o, own) {
		out.WaitsFor = append(out.WaitsFor, b.Text)
		out.Blockers = append(out.Blockers, &pb.SwitchBlocker{
			Code: string(b.Code), Text: b.Text, Resolve: b.Resolve(), Version: b.Place.Version, Kind: b.Place.Kind,
			Shards: int32s(b.Place.Shards), Controller: b.Place.Controller, Server: b.Place.Server,
		})
	}
	return out
}

// blockers returns all reasons why a switch does not begin or continue.
func blockers(s deployment.State, o *switchover.Readiness, own []upgradestate.Blocker) (all []upgradestate.Blocker) {
	add := func(bs ...upgradestate.Blocker) {
		for _, b := range bs {
			// Several sources know the same reason; show it once.
			if !slices.ContainsFunc(all, b.Equal) {
				all = append(all, b)
			}
		}
	}
	u := s.Record.Upgrade
	if u != nil && len(s.Controllers) == 0 {
		add(upgradestate.Blocker{Code: upgradestate.BlockUnowned, Text: "a controller: none is running"})
	}
	shards := shardBlockers(s)
	if len(o.Blockers) == 0 { // a driver without blocker codes
		for _, text := range o.WaitsFor {
			add(upgradestate.Blocker{Code: upgradestate.BlockUncoded, Text: text})
		}
	}
	for _, b := range o.Blockers {
		// The reports of the shards say more than the driver's count of them.
		if b.Code != upgradestate.BlockShards || len(shards) == 0 {
			add(b)
		}
	}
	if u != nil {
		for _, b := range upgradestate.SwitchBlockers(s.Record) {
			// The driver's latest look may be older than the record.
			if u.State == upgradestate.InitialSyncing || b.Code == upgradestate.BlockPending {
				add(b)
			}
		}
		if late := notHolding(s); late.Text != "" {
			add(late)
		}
		add(shards...)
		add(own...)
		if u.State == upgradestate.InitialSyncing && o.ID == "" && len(all) == 0 {
			add(upgradestate.Blocker{Code: upgradestate.BlockUndriven, Text: "a controller that drives it and checks for obstacles"})
		}
	}
	return all
}

// shardBlockers explains why shards have not reported. It combines the shards of each code, so that
// the list is short for any number of shards.
func shardBlockers(s deployment.State) (all []upgradestate.Blocker) {
	if s.Record.Upgrade == nil {
		return nil
	}
	byShard := map[int]syncer.Progress{}
	for _, p := range s.Progress {
		byShard[p.Shard] = p
	}
	at := map[upgradestate.BlockCode]int{}
	mixed := map[upgradestate.BlockCode]bool{}
	pending := upgradestate.PendingShards(s.Record)
	for shard := range s.Record.RingSize {
		p, owned := byShard[shard]
		b := upgradestate.Blocker{Code: p.Code, Text: p.WaitsFor, Place: upgradestate.BlockPlace{Version: p.Version}}
		switch {
		case !owned:
			b = upgradestate.Blocker{Code: upgradestate.BlockUnowned, Text: "a controller"}
		case p.WaitsFor == syncer.ForSwitch:
			continue // the shard waits, and nothing waits for it
		// An older controller sends no code.
		case p.WaitsFor != "" && p.Code == "":
			b.Code = upgradestate.BlockUncoded
		case p.WaitsFor != "":
		case !slices.Contains(pending, shard):
			continue
		default:
			b = upgradestate.Blocker{Code: upgradestate.BlockReport, Text: "the report of its owner", Place: upgradestate.BlockPlace{Controller: p.Owner}}
		}
		// Group by code, in the order of the first shard.
		i, seen := at[b.Code]
		if !seen {
			i, at[b.Code] = len(all), len(all)
			all = append(all, b)
		}
		mixed[b.Code] = mixed[b.Code] || all[i].Text != b.Text
		if all[i].Place.Controller != b.Place.Controller {
			all[i].Place.Controller = "" // several controllers
		}
		all[i].Place.Shards = append(all[i].Place.Shards, shard)
	}
	// Name the shards last, when all of them are known.
	for i, b := range all {
		where := fmt.Sprintf("shard %d", b.Place.Shards[0])
		switch n := len(b.Place.Shards); {
		case n > 1 && n == s.Record.RingSize:
			where = "all shards"
		case n > 1:
			where = "shards " + ring.Ranges(b.Place.Shards)
		}
		if all[i].Text = where + ": " + b.Text; mixed[b.Code] {
			all[i].Text = fmt.Sprintf("%s: such as %s", where, b.Text)
		}
	}
	return all
}

// notHolding names the servers and applications that have not acknowledged a hold. The zero value
// means none.
func notHolding(s deployment.State) upgradestate.Blocker {
	const most = 5
	u := s.Record.Upgrade
	// Outside HOLD, nothing waits for servers.
	if u == nil || u.Step != upgradestate.StepHold {
		return upgradestate.Blocker{}
	}
	var late []string
	for _, state := range s.Servers {
		if !holdsFor(state, u) {
			late = append(late, state.ID)
		}
	}
	if len(late) == 0 {
		return upgradestate.Blocker{}
	}
	// Name a few only, because the line is shown to operators.
	text := fmt.Sprintf("%d of %d servers and applications to hold their writes: %s", len(late), len(s.Servers), strings.Join(late[:min(most, len(late))], ", "))
	if len(late) > most {
		text += ", ..."
	}
	return upgradestate.Blocker{Code: upgradestate.BlockHolding, Text: text, Place: upgradestate.BlockPlace{Server: late[0]}}
}
