package api

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/deployment"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Process is what the process that is asked says of itself.
type Process struct {
	Waits      []upgradestate.Blocker    // for what it waits before it can work
	Encryption map[string]*pb.Encryption // of what is stored, by version
	Lacks      []string                  // what a rollback will lack of indexes and options
	Views      string                    // what becomes of views that the upgrade leaves behind
}

// Status is a state as the API shows it.
func Status(s deployment.State, asked Process) *pb.Deployment {
	d := recordStatus(s.Record)
	if s.Record.Upgrade == nil && len(deployment.Directions(s.Record)) == 0 {
		s.Progress = nil // what was reported is of a direction that has ended
	}
	d.Progress = progressStatus(s, asked.Waits)
	for i, ns := range s.Record.Namespaces {
		if e := asked.Encryption[ns.Version]; e != nil {
			e = proto.CloneOf(e) // the next answer has another record
			e.Declined = ns.DeclinedKey
			d.Namespaces[i].Encryption = e
		}
	}
	d.Pace.Now = heldBack(s.Progress, s.Record.Pace.Paused)
	if d.Update != nil {
		addUpdating(d.Update, s.Record.Update, s.Updating)
	}
	d.Readiness = readinessStatus(s, asked.Waits)
	if d.RollbackSafe = rollbackSafe(s); d.RollbackSafe != nil {
		d.RollbackSafe.Lacks = asked.Lacks
	}
	d.Views = asked.Views
	d.FormerNames = formerNames(s)
	d.Replaced = replacedStatus(s)
	d.History, d.HistoryDropped = historyStatus(s.Record), int64(s.Record.HistoryDropped)
	d.Controllers, d.Unreadable = s.Controllers, s.Unreadable
	for _, c := range s.Insecure {
		for _, w := range c.Warnings {
			d.Warnings = append(d.Warnings, "controller "+c.ID+": "+w)
		}
	}
	for _, state := range s.Servers {
		active := state.Active
		if state.Client {
			active = "" // an application does not say where it writes
		}
		d.Servers = append(d.Servers, &pb.Server{
			Id: state.ID, Protocol: int32(state.Protocol), Versions: state.Versions, ActiveVersion: active,
			Client: state.Client, Held: int32(state.Held), RestartMillis: clamp(state.RestartMillis),
			Acked: holdsFor(state, s.Record.Upgrade), Since: state.Since, Usage: usageStatus(state), Warnings: state.Warnings,
		})
	}
	return d
}

// holdsFor reports whether a server acknowledged the hold of the present attempt.
func holdsFor(state upgradestate.ServerState, u *upgradestate.Upgrade) bool {
	return u != nil && u.State == upgradestate.Switching && state.AckID == u.ID && state.AckAttempt == u.Attempt
}

// recordStatus is what follows from the record alone.
func recordStatus(r upgradestate.Deployment) *pb.Deployment {
	d := &pb.Deployment{
		Name: r.Name, CurrentVersion: r.CurrentVersion, Epoch: int64(r.Epoch),
		RingSize: int32(r.RingSize), Revision: r.Revision,
		ReverseSync: reverseSync(r), Pace: paceStatus(r.Pace), Update: updateStatus(r.Update), Retired: r.Retired,
	}
	if r.Retire != nil {
		d.Retiring = r.Retire.Version
	}
	for _, kept := range r.Kept {
		ns := kept.Namespace
		out := &pb.KeptNamespace{Version: ns.Version, Location: ns.Location, Until: kept.Until}
		for _, k := range ns.Kinds {
			out.Collections = append(out.Collections, upgradestate.RetiredName(ns.Version, k))
		}
		d.Kept = append(d.Kept, out)
	}
	for _, ns := range r.Namespaces {
		out := &pb.Namespace{Version: ns.Version, Location: ns.Location}
		for _, k := range ns.Kinds {
			kind := &pb.Kind{
				Kind: k.Kind, Fixed: k.Fixed, PhysicalName: k.Physical, Id: k.ID,
				FenceClass: k.Fence, FenceGuarantee: FenceGuarantee(k.Fence),
			}
			if k.Pending != nil {
				kind.NextName = k.Pending.To
			}
			out.Kinds = append(out.Kinds, kind)
		}
		d.Namespaces = append(d.Namespaces, out)
	}
	d.Restored, d.Different = upgradestate.RestoredLine(r), upgradestate.DifferentLine(r)
	for _, b := range upgradestate.OpenBreaches(r) {
		d.Breaches = append(d.Breaches, &pb.Breach{At: b.At, Version: b.Version, Kind: b.Kind, What: b.What, Aside: b.Aside, Count: b.Count})
	}
	for _, a := range r.Available {
		if a.TargetVersion != r.CurrentVersion {
			d.AvailableUpgrades = append(d.AvailableUpgrades, &pb.AvailableUpgrade{TargetVersion: a.TargetVersion, TransformHash: a.TransformHash})
		}
	}
	if u := r.Upgrade; u != nil {
		d.UpgradeState = &pb.UpgradeState{
			Id: u.ID, TargetVersion: u.TargetVersion, TransformHash: u.TransformHash,
			State: phase(u.State), Step: string(u.Step), Attempt: int64(u.Attempt), AbortReason: u.AbortReason,
			ReadyShards: int32s(u.ReadyShards), PendingShards: int32s(upgradestate.PendingShards(r)),
			Policy: &pb.SwitchPolicy{
				Hold: u.Policy.Hold, DeadlineMs: u.Policy.DeadlineMillis, MaxPauseMs: u.Policy.MaxPauseMillis,
				MaxHoldMs: u.Policy.MaxHoldMillis, Retries: int32(u.Policy.Retries),
			},
			SwitchAsked: u.SwitchAsked, ToSnapshot: u.Snapshot,
			Failures: int32(u.Failures), LastFailure: u.LastFailure, Again: u.Again,
		}
	}
	if l := r.LastSwitch; l != nil {
		d.LastSwitch = &pb.LastSwitch{Id: l.ID, FromVersion: l.From, ToVersion: l.To, At: l.At, Back: l.Back, Snapshot: l.Snapshot, Millis: map[string]int32{}}
		for step, ms := range l.Millis {
			d.LastSwitch.Millis[step] = clamp(ms)
			d.LastSwitch.PauseMillis = clamp(int64(d.LastSwitch.PauseMillis) + ms)
		}
	}
	return d
}

func phase(p upgradestate.Phase) pb.UpgradeState_State {
	switch p {
	case upgradestate.InitialSyncing:
		return pb.UpgradeState_INITIAL_SYNCING
	case upgradestate.Switching:
		return pb.UpgradeState_SWITCHING
	default:
		return pb.UpgradeState_STATE_UNSPECIFIED
	}
}

// FenceGuarantee says what a fence class lets through, before anybody relies on it; empty
// for none.
func FenceGuarantee(class string) string {
	switch class {
	case "uuid":
		return "late inserts, updates, deletes and reads are refused by the database"
	case "view":
		return "late writes of any client are refused by the database"
	case "writeBlock":
		return "the whole cluster refuses user writes during the switch"
	case "validator":
		return "late inserts and updates are refused by the database; late deletes pass, are detected and reported, and never applied"
	default:
		return ""
	}
}

// locationOf is where an application finds its data. Until the new version is open, that is
// the old one: its collections stand still and can be read, while those of the new version
// do not bear their names yet, so that who read there would find nothing.
func locationOf(r upgradestate.Deployment) *pb.Location {
	version, places := upgradestate.WritePlaces(r)
	ns, _ := r.Namespace(version)
	opening := len(places) == 0 && len(ns.Kinds) > 0
	// A source that is being left has hidden collections as well, and is the version to read.
	u := r.Upgrade
	switching := u != nil && u.State == upgradestate.Switching
	if last := r.LastSwitch; opening && !switching && last != nil && last.To == version {
		if old, ok := r.Namespace(last.From); ok && anyHidden(ns) && !upgradestate.Retired(r, last.From) {
			version, ns = last.From, old
		}
	}
	_, database, _ := strings.Cut(ns.Location, ":") // behind the backend
	out := &pb.Location{
		State: pb.Location_OPEN, Version: version, Database: database, Revision: r.Revision,
		Hosts: ns.Hosts, Cluster: ns.Identity.Cluster, Deployment: r.Name, Epoch: int64(r.Epoch),
	}
	// Without places to write, writes wait: in SWITCHING, and after it until the
	// collections bear their names again.
	if opening {
		out.State = pb.Location_HOLD
		if last := r.LastSwitch; last != nil {
			out.UpgradeId = last.ID // its collections are still being given their names
		}
	}
	if switching {
		out.State, out.UpgradeId, out.Attempt = pb.Location_HOLD, u.ID, int64(u.Attempt)
	}
	for _, k := range ns.Kinds {
		kind := &pb.KindLocation{Kind: k.Kind, Database: database, Collection: k.Physical, Fixed: k.Fixed}
		if k.Fixed {
			kind.Collection = k.Kind // the name that applications know, whatever it bears meanwhile
		}
		out.Kinds = append(out.Kinds, kind)
	}
	return out
}

// anyHidden reports whether a collection of a version does not bear its application's name.
func anyHidden(ns upgradestate.Namespace) bool {
	return slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Fixed && k.Hidden })
}

func parkedStatus(p syncer.Parked) *pb.ParkedRecord {
	return &pb.ParkedRecord{
		Kind: p.Kind, Key: p.Key, Version: p.Version, Error: p.Error, Waived: p.Waived,
		Shard: int32(p.Shard), Direction: string(p.Direction), Overflow: deployment.IsOverflow(p),
	}
}

func int32s(list []int) []int32 {
	out := make([]int32, 0, len(list))
	for _, i := range slices.Sorted(slices.Values(list)) {
		out = append(out, int32(i))
	}
	return out
}

func clamp(ms int64) int32 { return int32(min(ms, math.MaxInt32)) }

func paceStatus(p upgradestate.Pace) *pb.Pace {
	return &pb.Pace{
		Paused: p.Paused, Reason: p.Reason, MaxRate: clamp(int64(p.MaxRate)),
		MaxSourceLoad: clamp(int64(p.MaxSourceLoad)), Window: p.Window,
	}
}

func usageStatus(state upgradestate.ServerState) []*pb.VersionUsage {
	var all []*pb.VersionUsage
	for _, version := range slices.Sorted(maps.Keys(state.Used)) {
		used := state.Used[version]
		all = append(all, &pb.VersionUsage{Version: version, Calls: used.Calls, Last: used.Last})
	}
	return all
}

// formerNames are those that the latest switch left, and nothing of one before it.
func formerNames(s deployment.State) *pb.FormerNames {
	f, last := s.Names, s.Record.LastSwitch
	if f == nil || last == nil || f.ID != last.ID {
		return nil
	}
	out := &pb.FormerNames{Unknown: f.Unknown}
	for _, u := range f.Uses {
		use := &pb.NameUse{Version: u.Version, Kind: u.Kind, Reads: u.Reads, Writes: u.Writes, Last: u.Last}
		for _, c := range u.Users {
			use.Users = append(use.Users, &pb.NameUser{Application: c.Application, Driver: c.Driver, Address: c.Address, Last: c.Last})
		}
		out.Uses = append(out.Uses, use)
	}
	return out
}

// pauseOf is how long the attempt that switched held writes, in all; 0 for what has not switched.
// The latest switch was measured by its driver, earlier ones follow from when phases were entered.
func pauseOf(r upgradestate.Deployment, e upgradestate.Entry) (ms int64) {
	if e.What != "upgrade" || e.Outcome != "switched" {
		return 0
	}
	if last := r.LastSwitch; last != nil && last.ID == e.ID {
		for _, part := range last.Millis {
			ms += part
		}
		return ms
	}
	ended, err := time.Parse(time.RFC3339Nano, e.Ended)
	if err != nil {
		return 0
	}
	for _, p := range slices.Backward(e.Phases) {
		if held, err := time.Parse(time.RFC3339Nano, p.At); err == nil && p.Phase == string(upgradestate.StepHold) {
			return max(0, ended.Sub(held).Milliseconds())
		}
	}
	return 0
}

func historyStatus(r upgradestate.Deployment) []*pb.HistoryEntry {
	var all []*pb.HistoryEntry
	for _, e := range r.History {
		out := &pb.HistoryEntry{
			At: e.At, By: e.By, What: e.What, Id: e.ID, From: e.From, To: e.To,
			Detail: e.Detail, Outcome: e.Outcome, Ended: e.Ended, Identity: e.Identity, Address: e.Address, PauseMillis: pauseOf(r, e),
		}
		for _, p := range e.Phases {
			out.Phases = append(out.Phases, &pb.PhaseTime{Phase: p.Phase, At: p.At})
		}
		all = append(all, out)
	}
	return all
}
