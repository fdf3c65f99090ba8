package deployment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
)

func paceStatus(p upgradestate.Pace) *pb.Pace {
	return &pb.Pace{
		Paused: p.Paused, Reason: p.Reason, MaxRate: clamp(int64(p.MaxRate)),
		MaxSourceLoad: clamp(int64(p.MaxSourceLoad)), Window: p.Window,
	}
}

// heldBack says why controllers hold bulk work back now, each reason once.
func heldBack(ps []syncer.Progress, paused bool) []string {
	if paused {
		return nil // the pace says it, with the reason
	}
	var reasons []string
	for _, p := range ps {
		if strings.HasPrefix(p.Pace, "paused") {
			continue // it was resumed since
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
	return &pb.DataUpdate{
		Id: u.ID, Name: u.Name, Version: u.Version, Kind: u.Kind,
		DoneShards: clamp(int64(len(u.Done))), Seen: u.Count.Seen, Changed: u.Count.Changed,
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

func historyStatus(r upgradestate.Deployment) []*pb.HistoryEntry {
	var all []*pb.HistoryEntry
	for _, e := range r.History {
		out := &pb.HistoryEntry{
			At: e.At, By: e.By, What: e.What, Id: e.ID, From: e.From, To: e.To,
			Detail: e.Detail, Outcome: e.Outcome, Ended: e.Ended, Identity: e.Identity, Address: e.Address,
		}
		for _, p := range e.Phases {
			out.Phases = append(out.Phases, &pb.PhaseTime{Phase: p.Phase, At: p.At})
		}
		all = append(all, out)
	}
	return all
}

// backDirection is the one in which the version that the latest switch came from follows.
func backDirection(d upgradestate.Deployment) (dir syncer.DirectionKey, ok bool) {
	last := d.LastSwitch
	if last == nil || last.To != d.CurrentVersion || upgradestate.Retired(d, last.From) {
		return "", false
	}
	to, ok := upgradestate.Followed(d)
	if !ok || to.TargetVersion != last.From || d.Upgrade != nil && d.Upgrade.Snapshot {
		return "", false
	}
	return syncer.KeyIn(d, to), true
}

// wayBackParked counts what is parked on the way back.
func (s *Store) wayBackParked(ctx context.Context, d upgradestate.Deployment) (ParkedCount, error) {
	dir, ok := backDirection(d)
	if !ok {
		return ParkedCount{}, nil
	}
	list, err := s.Parked(ctx, dir, -1)
	return countParked(list), err
}

func records(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

// rollbackSafe is nil where there is nowhere to go back to: before the first switch, after
// the way back, and when the version that was left is gone.
func rollbackSafe(s State) *pb.RollbackSafe {
	d := s.Record
	last := d.LastSwitch
	if last == nil || last.Back || upgradestate.Retired(d, last.From) {
		return nil
	}
	out := &pb.RollbackSafe{Blocking: s.Back.Blocking, Waived: s.Back.Waived}
	_, followed := backDirection(d)
	switch {
	case !followed && d.Upgrade != nil && d.Upgrade.TargetVersion != last.From:
		out.Reason = fmt.Sprintf("%s does not follow while the upgrade to %s runs", last.From, d.Upgrade.TargetVersion)
	case !followed:
		out.Reason = noWayBack(d)
	case len(upgradestate.OpenBreaches(d)) > 0:
		b := upgradestate.OpenBreaches(d)[0]
		out.Reason = fmt.Sprintf("%s of %s: %s: see 'get', bring over what is missing, then 'accept-breaches'", b.Kind, b.Version, b.What)
	case out.Blocking > 0:
		out.Reason = fmt.Sprintf("%s cannot be brought back to %s: see 'parked', correct or waive them", records(out.Blocking), last.From)
	default:
		out.Safe = true
	}
	return out
}
