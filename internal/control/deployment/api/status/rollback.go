package status

import (
	"fmt"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// reverseSync reports whether the version before the latest switch is kept in sync.
func reverseSync(d upgradestate.Deployment) *pb.ReverseSync {
	switch last := d.LastSwitch; {
	case last == nil:
		return &pb.ReverseSync{Reason: "no switch was made yet"}
	case upgradestate.Retired(d, last.From):
		return &pb.ReverseSync{Reason: NoReverseSync(d)}
	case upgradestate.ReverseSynced(d):
		return &pb.ReverseSync{Enabled: true, Reason: fmt.Sprintf("%s follows %s; %s returns to it", last.From, last.To, backVerb(last))}
	default:
		return &pb.ReverseSync{Reason: NoReverseSync(d)}
	}
}

// backVerb returns the command that goes back to the version before the latest switch.
func backVerb(last *upgradestate.Switch) string {
	if last.Back { // 'rollback' was used already
		return "'begin-upgrade deployment --target-version " + last.From + "'"
	}
	return "'rollback'"
}

// NoReverseSync explains why the version before the latest switch is not kept in sync.
func NoReverseSync(d upgradestate.Deployment) string {
	from := d.LastSwitch.From
	switch {
	case upgradestate.Retired(d, from):
		return from + " was retired"
	case d.LastSwitch.Snapshot:
		return fmt.Sprintf("%s stays as the rollback to the snapshot of %s left it, and is not synced until an upgrade to it begins", from, d.CurrentVersion)
	case d.LastSwitch.Outdated:
		return fmt.Sprintf("%s stays as it was when a new epoch began without a switch (see the history), and is not synced until an upgrade to it begins, which compares everything", from)
	}
	// After a switch this is true until a controller announces the direction back.
	return fmt.Sprintf("%s does not follow yet: a controller announces it within seconds after a switch, so retry; if this does not help, its entry in dbs is disabled or missing, or no controller runs", from)
}

// Records returns a number of records in words.
func Records(n int64) string { return Counted(n, "record") }

// Counted returns a number with its noun, such as "1 wave" or "3 waves".
func Counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// rollbackSafe returns whether a rollback would lose nothing. It is nil if there is no version to
// go back to: before the first switch, after the rollback, and after the old version was retired.
// away is the reason why the old version's database cannot be used now, or "".
func rollbackSafe(s deployment.State, away string) *pb.RollbackSafe {
	d := s.Record
	last := d.LastSwitch
	if last == nil || last.Back || upgradestate.Retired(d, last.From) {
		return nil
	}
	out := &pb.RollbackSafe{Blocking: s.Back.Blocking, Waived: s.Back.Waived}
	// Report the most important reason only.
	_, followed := deployment.BackDirection(d)
	switch {
	case !followed && d.Upgrade != nil && d.Upgrade.TargetVersion != last.From:
		out.Reason = fmt.Sprintf("%s does not follow while the upgrade to %s runs", last.From, d.Upgrade.TargetVersion)
	case upgradestate.RestoredLine(d) != "":
		out.Reason = "it waits for " + upgradestate.RestoredLine(d)
	case upgradestate.DifferentLine(d) != "":
		out.Reason = "it waits for " + upgradestate.DifferentLine(d)
	// This also explains why the version does not follow.
	case away != "":
		out.Reason = fmt.Sprintf("the database of %s cannot be used now, but a rollback needs it: %s", last.From, away)
	case !followed:
		out.Reason = NoReverseSync(d)
	case len(upgradestate.OpenBreaches(d)) > 0:
		b := upgradestate.OpenBreaches(d)[0]
		out.Reason = fmt.Sprintf("%s of %s: %s: see 'get', copy the missing writes, then run 'accept-breaches'", b.Kind, b.Version, b.What)
	case out.Blocking > 0:
		out.Reason = fmt.Sprintf("%s cannot be migrated back to %s: see 'parked', fix or waive them", Records(out.Blocking), last.From)
	default:
		out.Safe = true
	}
	return out
}
