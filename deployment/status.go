package deployment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/syncer"
	"dbcontroller/update"
	"dbcontroller/upgradestate"
)

// State is all that a status is built from.
type State struct {
	Record      upgradestate.Deployment
	Progress    []syncer.Progress // by shard, at most one for each
	Servers     []upgradestate.ServerState
	Controllers []string
	Outlook     *pb.SwitchOutlook // nil: none
	Back        ParkedCount       // in the direction that goes back
	Updating    []update.Progress // of the data update that runs
	Warnings    []string          // what is insecure about it
	Waits       []string          // for what the process that was asked waits itself
}

// reverseSync says whether the version that the latest switch came from is kept level.
func reverseSync(d upgradestate.Deployment) *pb.ReverseSync {
	switch last := d.LastSwitch; {
	case last == nil:
		return &pb.ReverseSync{Reason: "nothing was switched yet"}
	case upgradestate.Retired(d, last.From):
		return &pb.ReverseSync{Reason: noWayBack(d)}
	case upgradestate.WayBack(d):
		return &pb.ReverseSync{Enabled: true, Reason: fmt.Sprintf("%s follows %s; %s goes back", last.From, last.To, backVerb(last))}
	default:
		return &pb.ReverseSync{Reason: noWayBack(d)}
	}
}

// backVerb is the command that goes back to where the latest switch came from.
func backVerb(last *upgradestate.Switch) string {
	if last.Back { // 'rollback' has done its work
		return "'begin-upgrade deployment --target-version " + last.From + "'"
	}
	return "'rollback'"
}

// noWayBack says why the version that the latest switch came from is not kept level.
func noWayBack(d upgradestate.Deployment) string {
	from := d.LastSwitch.From
	switch {
	case upgradestate.Retired(d, from):
		return from + " was retired"
	case d.LastSwitch.Snapshot:
		return fmt.Sprintf("%s is as it was left for the snapshot of %s; nothing follows until an upgrade to it begins", from, d.CurrentVersion)
	}
	return fmt.Sprintf("%s is as the switch left it: its entry in dbs is disabled or missing, or no controller runs", from)
}

// Status is a State as the API shows it.
func Status(s State) *pb.Deployment {
	d := recordStatus(s.Record)
	if s.Record.Upgrade == nil && len(directions(s.Record)) == 0 {
		s.Progress = nil // what was reported is of a direction that has ended
	}
	d.Progress = progressStatus(s)
	d.Pace.Now = heldBack(s.Progress, s.Record.Pace.Paused)
	if d.Update != nil {
		addUpdating(d.Update, s.Record.Update, s.Updating)
	}
	d.Outlook = s.Outlook
	d.RollbackSafe = rollbackSafe(s)
	d.History, d.HistoryDropped = historyStatus(s.Record), int64(s.Record.HistoryDropped)
	d.Controllers = s.Controllers
	d.Warnings = s.Warnings
	for _, state := range s.Servers {
		active := state.Active
		if state.Client {
			active = "" // an application does not say where it writes
		}
		d.Servers = append(d.Servers, &pb.Server{
			Id: state.ID, Protocol: int32(state.Protocol), Versions: state.Versions, ActiveVersion: active,
			Client: state.Client, Held: int32(state.Held), RestartMillis: clamp(state.RestartMillis),
			Acked: holdsFor(state, s.Record.Upgrade), Since: state.Since, Usage: usageStatus(state),
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

func progressStatus(s State) *pb.Progress {
	out := &pb.Progress{}
	byShard := map[int]syncer.Progress{}
	for _, p := range s.Progress {
		byShard[p.Shard] = p
	}
	var lag int64
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
		if out.LastError == "" && p.LastError != "" {
			out.LastError = fmt.Sprintf("shard %d: %s", shard, p.LastError)
		}
		copying = copying || p.Copied < p.Total
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
	out.WaitsFor = waitsFor(s, out.Shards)
	return out
}

// eta is nil while it cannot be told: nothing moves, or a shard does not report.
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

// waitsFor says what the upgrade, or the copy before one, waits for.
func waitsFor(s State, shards []*pb.ShardProgress) []string {
	waits := slices.Clone(s.Waits)
	if s.Record.Upgrade == nil && len(directions(s.Record)) == 0 {
		return waits
	}
	if len(s.Controllers) == 0 {
		waits = append(waits, "a controller: none is running")
	}
	if u := s.Record.Upgrade; u != nil && u.Step == upgradestate.StepHold {
		var late []string
		for _, state := range s.Servers {
			if !holdsFor(state, u) {
				late = append(late, state.ID)
			}
		}
		if len(late) > 0 {
			waits = append(waits, fmt.Sprintf("%d of %d servers to hold writes: %s", len(late), len(s.Servers), strings.Join(late, ", ")))
		}
	}
	for _, ns := range s.Record.Namespaces {
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				waits = append(waits, fmt.Sprintf("%s of %s (%s) from %s to %s to be confirmed", k.Pending.Reason, k.Kind, ns.Version, k.Pending.From, k.Pending.To))
			}
		}
	}
	if u := s.Record.Upgrade; u != nil && u.State == upgradestate.InitialSyncing && upgradestate.AllReady(s.Record) {
		// Pending acts are among the waits already.
		if why := upgradestate.HoldsBack(s.Record); why != "" && !strings.HasPrefix(why, "an earlier act") {
			waits = append(waits, why)
		}
	}
	if s.Record.Upgrade == nil && len(s.Progress) == 0 {
		return waits // nobody copies before an upgrade begins
	}
	return append(waits, shardsWaitFor(shards)...)
}

// shardsWaitFor says the same thing of several shards once.
func shardsWaitFor(shards []*pb.ShardProgress) []string {
	var texts []string
	who := map[string][]string{}
	for _, p := range shards {
		if p.WaitsFor == "" {
			continue
		}
		if who[p.WaitsFor] == nil {
			texts = append(texts, p.WaitsFor)
		}
		who[p.WaitsFor] = append(who[p.WaitsFor], strconv.Itoa(int(p.Shard)))
	}
	var waits []string
	for _, text := range texts {
		switch {
		case len(who[text]) == len(shards):
			waits = append(waits, "all shards: "+text)
		case len(who[text]) == 1:
			waits = append(waits, "shard "+who[text][0]+": "+text)
		default:
			waits = append(waits, "shards "+strings.Join(who[text], ", ")+": "+text)
		}
	}
	return waits
}

// locationOf is where an application finds its data.
func locationOf(r upgradestate.Deployment) *pb.Location {
	version, places := upgradestate.WritePlaces(r)
	ns, _ := r.Namespace(version)
	// A location ends with the database, whose name has none of the characters before it.
	database := ns.Location[strings.LastIndexAny(ns.Location, "/:")+1:]
	out := &pb.Location{
		State: pb.Location_OPEN, Version: version, Database: database, Revision: r.Revision,
		Hosts: ns.Hosts, Cluster: ns.Identity.Cluster,
	}
	// Without places to write, writes wait: in SWITCHING, and after it until the
	// collections bear their names again.
	if len(places) == 0 && len(ns.Kinds) > 0 {
		out.State = pb.Location_HOLD
		if last := r.LastSwitch; last != nil {
			out.UpgradeId = last.ID // its collections are still being given their names
		}
	}
	if u := r.Upgrade; u != nil && u.State == upgradestate.Switching {
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

func parkedStatus(p syncer.Parked) *pb.ParkedRecord {
	return &pb.ParkedRecord{
		Kind: p.Kind, Key: p.Key, Version: p.Version, Error: p.Error, Waived: p.Waived,
		Shard: int32(p.Shard), Direction: string(p.Direction), Overflow: IsOverflow(p),
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
