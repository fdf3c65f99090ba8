package api

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/deployment"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	ring "dbcontroller.dev/shards"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The driver knows reasons of the record and of the databases, each owner those of its shards, and
// the process that is asked its own. A caller sees all of them in one list. That nothing keeps
// the switch from beginning is said only when every shard has reported and the driver has looked.

// readinessStatus is what stands between an upgrade and its switch, or between a switch and its
// end: nothing of another upgrade than the one that runs, and without one only what still has to be
// done after the latest.
func readinessStatus(s deployment.State, own []upgradestate.Blocker) *pb.SwitchReadiness {
	o, d := s.Readiness, s.Record
	if d.Upgrade == nil {
		if o == nil || o.ID != "" {
			return nil
		}
	} else if o == nil || o.ID != d.Upgrade.ID {
		o = &switchover.Readiness{} // the driver has not said anything of it
	}
	out := &pb.SwitchReadiness{PredictedPauseMillis: o.PredictedPauseMillis, Rollback: o.Rollback, At: o.At}
	for _, b := range blockers(s, o, own) {
		out.WaitsFor = append(out.WaitsFor, b.Text)
		out.Blockers = append(out.Blockers, &pb.SwitchBlocker{
			Code: string(b.Code), Text: b.Text, Resolve: b.Resolve(), Version: b.Place.Version, Kind: b.Place.Kind,
			Shards: int32s(b.Place.Shards), Controller: b.Place.Controller, Server: b.Place.Server,
		})
	}
	return out
}

// blockers are all reasons why a switch does not begin, or go on.
func blockers(s deployment.State, o *switchover.Readiness, own []upgradestate.Blocker) (all []upgradestate.Blocker) {
	add := func(bs ...upgradestate.Blocker) {
		for _, b := range bs {
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
	if len(o.Blockers) == 0 { // a driver from before codes
		for _, text := range o.WaitsFor {
			add(upgradestate.Blocker{Code: upgradestate.BlockUncoded, Text: text})
		}
	}
	for _, b := range o.Blockers {
		// Shards say more than how many of them are waited for.
		if b.Code != upgradestate.BlockShards || len(shards) == 0 {
			add(b)
		}
	}
	if u != nil {
		for _, b := range upgradestate.SwitchBlockers(s.Record) {
			// What the driver has seen last may be older than the record.
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
			add(upgradestate.Blocker{Code: upgradestate.BlockUndriven, Text: "a controller that drives it, and checks what is in its way"})
		}
	}
	return all
}

// shardBlockers says of every shard that has not reported why not: one reason for each code, so
// that there are few however many shards there are.
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
			continue // the shard waits, and nobody for it
		case p.WaitsFor != "" && p.Code == "":
			b.Code = upgradestate.BlockUncoded
		case p.WaitsFor != "":
		case !slices.Contains(pending, shard):
			continue
		default:
			b = upgradestate.Blocker{Code: upgradestate.BlockReport, Text: "the report of its owner", Place: upgradestate.BlockPlace{Controller: p.Owner}}
		}
		i, seen := at[b.Code]
		if !seen {
			i, at[b.Code] = len(all), len(all)
			all = append(all, b)
		}
		mixed[b.Code] = mixed[b.Code] || all[i].Text != b.Text
		if all[i].Place.Controller != b.Place.Controller {
			all[i].Place.Controller = "" // several
		}
		all[i].Place.Shards = append(all[i].Place.Shards, shard)
	}
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

// notHolding says which servers and applications a hold still waits for; the zero value: none.
func notHolding(s deployment.State) upgradestate.Blocker {
	const most = 5
	u := s.Record.Upgrade
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
	text := fmt.Sprintf("%d of %d servers and applications to hold their writes: %s", len(late), len(s.Servers), strings.Join(late[:min(most, len(late))], ", "))
	if len(late) > most {
		text += ", ..."
	}
	return upgradestate.Blocker{Code: upgradestate.BlockHolding, Text: text, Place: upgradestate.BlockPlace{Server: late[0]}}
}
