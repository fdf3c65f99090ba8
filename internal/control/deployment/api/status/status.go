package status

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Process is the information of the answering process about itself.
type Process struct {
	Waits      []upgradestate.Blocker    // why it cannot work yet
	Encryption map[string]*pb.Encryption // of stored records, by version
	Following  []*pb.Following           // data updates that begin by themselves, with what they wait for
	Lacks      []string                  // indexes and options that a rollback will lack
	Away       string                    // why the database that a rollback needs cannot be used
	Views      string                    // views that the upgrade leaves behind
}

// Of converts a state to the API's form.
func Of(s deployment.State, asked Process) *pb.Deployment {
	d := OfRecord(s.Record)
	// Old progress would show a copy that no longer runs.
	if s.Record.Upgrade == nil && len(deployment.Directions(s.Record)) == 0 {
		s.Progress = nil // progress of a direction that has ended
	}
	d.Progress = progressStatus(s, asked.Waits)
	for i, ns := range s.Record.Namespaces {
		if e := asked.Encryption[ns.Version]; e != nil {
			e = proto.CloneOf(e) // copy, because the next answer has another record
			e.Declined = ns.DeclinedKey
			d.Namespaces[i].Encryption = e
		}
	}
	// A pause by an operator explains everything, and needs no further reasons.
	d.Pace.Now = heldBack(s.Progress, s.Record.Pace.Paused)
	if d.Update != nil {
		addUpdating(d.Update, s.Record.Update, s.Updating)
	}
	d.Following = followingStatus(s.Record, asked.Following)
	d.Readiness = readinessStatus(s, asked.Waits)
	if d.RollbackSafe = rollbackSafe(s, asked.Away); d.RollbackSafe != nil {
		d.RollbackSafe.Lacks = asked.Lacks
	}
	d.Views = asked.Views
	d.FormerNames = formerNames(s)
	d.Replaced = replacedStatus(s)
	d.History, d.HistoryDropped = historyStatus(s.Record), int64(s.Record.HistoryDropped)
	d.Controllers, d.Unreadable = s.Controllers, s.Unreadable
	// Warnings of controllers are about the whole deployment.
	for _, c := range s.Insecure {
		for _, w := range c.Warnings {
			d.Warnings = append(d.Warnings, "controller "+c.ID+": "+w)
		}
	}
	for _, state := range s.Servers {
		active := state.Active
		if state.Client {
			active = "" // an application does not report where it writes
		}
		d.Servers = append(d.Servers, &pb.Server{
			Id: state.ID, Protocol: int32(state.Protocol), Versions: state.Versions, ActiveVersion: active,
			Client: state.Client, Held: int32(state.Held), RestartMillis: clamp(state.RestartMillis),
			Acked: holdsFor(state, s.Record.Upgrade), Since: state.Since, Usage: usageStatus(state), Warnings: state.Warnings,
			Copies: copiesStatus(state), Moves: movesStatus(state),
		})
	}
	return d
}

// copiesStatus returns what a server reports about its copies of other regions' records.
func copiesStatus(state upgradestate.ServerState) (all []*pb.RegionCopies) {
	for _, c := range state.Copies {
		all = append(all, &pb.RegionCopies{Version: c.Version, Kind: c.Kind, Region: c.Region, Whole: c.Whole, Away: c.Away, Problem: c.Problem, Both: int32(c.Both)})
	}
	return all
}

// movesStatus returns what a server reports about moves of records between regions.
func movesStatus(state upgradestate.ServerState) (all []*pb.RegionMoves) {
	for _, m := range state.Moves {
		all = append(all, &pb.RegionMoves{Kind: m.Kind, Region: m.Region, In: m.In, Count: int32(m.Count), Since: m.Since, Record: m.Record, Waits: m.Waits})
	}
	return all
}

// holdsFor reports whether a server acknowledged the hold of the current attempt.
func holdsFor(state upgradestate.ServerState, u *upgradestate.Upgrade) bool {
	return u != nil && u.State == upgradestate.Switching && state.AckID == u.ID && state.AckAttempt == u.Attempt
}

// OfRecord returns the status that follows from the record alone.
func OfRecord(r upgradestate.Deployment) *pb.Deployment {
	d := &pb.Deployment{
		Name: r.Name, CurrentVersion: r.CurrentVersion, Epoch: int64(r.Epoch),
		RingSize: int32(r.RingSize), Revision: r.Revision,
		ReverseSync: reverseSync(r), Pace: paceStatus(r.Pace), Update: updateStatus(r.Update), Retired: r.Retired,
		Following: followingStatus(r, nil),
	}
	if r.Retire != nil {
		d.Retiring = r.Retire.Version
	}
	// Collections of retired versions that are not dropped yet.
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
			// Servers need the announced name before the rename.
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
	// An offer of the current version is left from before the switch.
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
			Policy: policyOf(u.Policy), SwitchAsked: u.SwitchAsked, ToSnapshot: u.Snapshot,
			Failures: int32(u.Failures), LastFailure: u.LastFailure, Again: u.Again,
		}
	}
	if l := r.LastSwitch; l != nil {
		d.LastSwitch = &pb.LastSwitch{Id: l.ID, FromVersion: l.From, ToVersion: l.To, At: l.At, Back: l.Back, Snapshot: l.Snapshot, Millis: clampEach(l.Millis)}
		for _, ms := range l.Millis { // the parts add up to the pause
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

// FenceGuarantee describes the writes that a fence class stops. It is empty for an unknown class.
func FenceGuarantee(class string) string {
	switch class {
	case "uuid":
		return "late inserts, updates, deletes and reads are refused by the database"
	case "view":
		return "late writes of any client are refused by the database"
	case "writeBlock":
		return "the whole cluster refuses user writes during the switch"
	case "validator":
		return "late inserts and updates are refused by the database; late deletes pass: they are reported, and those after the flip are undone"
	default:
		return ""
	}
}

// Location returns where an application finds its data. Until the new version is open, that is
// the old version. Its collections no longer change but can be read. The new version's collections
// do not have their final names yet, and readers would find nothing.
func Location(r upgradestate.Deployment) *pb.Location {
	version, places := upgradestate.WritePlaces(r)
	ns, _ := r.Namespace(version)
	// During and right after a switch there are no places to write.
	opening := len(places) == 0 && len(ns.Kinds) > 0
	// During the switch the source has hidden collections too, and is still the version to read.
	u := r.Upgrade
	switching := u != nil && u.State == upgradestate.Switching
	// After the flip, the new version's collections get their names one by one.
	if last := r.LastSwitch; opening && !switching && last != nil && last.To == version {
		if old, ok := r.Namespace(last.From); ok && anyHidden(ns) && !upgradestate.Retired(r, last.From) {
			version, ns = last.From, old
		}
	}
	_, database, _ := strings.Cut(ns.Location, ":") // after the backend's name
	out := &pb.Location{
		State: pb.Location_OPEN, Version: version, Database: database, Revision: r.Revision,
		Hosts: ns.Hosts, Cluster: ns.Identity.Cluster, Deployment: r.Name, Epoch: int64(r.Epoch),
	}
	// Without places to write, writes wait. This is so during SWITCHING, and afterwards until the
	// collections have their names again.
	if opening {
		out.State = pb.Location_HOLD
		if last := r.LastSwitch; last != nil {
			out.UpgradeId = last.ID // its collections are still being renamed
		}
	}
	if switching {
		out.State, out.UpgradeId, out.Attempt = pb.Location_HOLD, u.ID, int64(u.Attempt)
		out.Unfenced = u.Step == upgradestate.StepHold // the next step announces the fences
	}
	for _, k := range ns.Kinds {
		kind := &pb.KindLocation{Kind: k.Kind, Database: database, Collection: k.Physical, Fixed: k.Fixed, Id: k.ID, Fence: k.Fence}
		if k.Fixed {
			kind.Collection = k.Kind // the name that applications know, whatever its current name
		}
		out.Kinds = append(out.Kinds, kind)
	}
	return out
}

// anyHidden reports whether a collection of a version does not have its application's name.
func anyHidden(ns upgradestate.Namespace) bool {
	return slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Fixed && k.Hidden })
}

func Parked(p syncer.Parked) *pb.ParkedRecord {
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

// clampEach clamps the milliseconds of each step.
func clampEach(millis map[string]int64) map[string]int32 {
	out := map[string]int32{}
	for step, ms := range millis {
		out[step] = clamp(ms)
	}
	return out
}

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

// formerNames returns the use of names from before the latest switch. It ignores earlier switches.
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

// pauseOf returns how many milliseconds writes were held by the attempt that switched, 0 if none
// did. The driver measured the latest switch. For earlier ones, the times of the phases show it.
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
	// Older entries have no measured times, but the times of their phases.
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

// policyOf returns an upgrade's policy as the API has it.
func policyOf(p upgradestate.Policy) *pb.SwitchPolicy {
	return &pb.SwitchPolicy{
		Hold: p.Hold, DeadlineMs: p.DeadlineMillis, MaxPauseMs: p.MaxPauseMillis,
		MaxHoldMs: p.MaxHoldMillis, Retries: int32(p.Retries),
	}
}
