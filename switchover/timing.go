package switchover

import (
	"fmt"
	"maps"
	"time"

	"dbcontroller.dev/upgradestate"
)

// observe notes when this driver first saw an attempt and each of its steps.
func (r *Driver) observe(d upgradestate.Deployment) {
	now := time.Now()
	r.observeFailure(d, now)
	var seen attempt
	var step upgradestate.Step
	if u := d.Upgrade; u != nil && u.State == upgradestate.Switching {
		seen, step = attempt{u.ID, u.Attempt}, u.Step
		if step == upgradestate.StepAbort {
			seen.n = r.attempt.n // an abort counts as part of the attempt that it ends
		}
	}
	if seen != r.attempt {
		r.traceAttempt(d, seen, now)
		r.attempt, r.attemptSince, r.millis = seen, now, map[string]int64{}
		r.step, r.stepSince = "", now
		r.position = ""
	}
	if step == r.step {
		return
	}
	if name := phase(r.step); name != "" {
		r.millis[name] += now.Sub(r.stepSince).Milliseconds()
	}
	r.traceStep(now)
	r.step, r.stepSince = step, now
}

// phase is the name under which a step's time is reported.
func phase(s upgradestate.Step) string {
	switch s {
	case upgradestate.StepHold:
		return "hold"
	case upgradestate.StepFence:
		return "fence"
	case upgradestate.StepDrain:
		return "drain"
	case upgradestate.StepSealTarget, upgradestate.StepSealSource:
		return "flip"
	case upgradestate.StepNone, upgradestate.StepAbort:
		return ""
	default:
		return ""
	}
}

// measured is the record of the switch that is about to flip: the sealing renames count
// as part of the flip.
func (r *Driver) measured(d upgradestate.Deployment) upgradestate.Switch {
	millis := maps.Clone(r.millis)
	if name := phase(r.step); name != "" {
		millis[name] += time.Since(r.stepSince).Milliseconds()
	}
	return upgradestate.Switch{
		ID: d.Upgrade.ID, From: d.CurrentVersion, To: d.Upgrade.TargetVersion,
		Millis: millis, At: time.Now().UTC().Format(time.RFC3339Nano), Position: r.position,
	}
}

// deadline is how long the upgrade may be in SWITCHING.
func (r *Driver) deadline(d upgradestate.Deployment) time.Duration {
	if u := d.Upgrade; u != nil && u.Policy.DeadlineMillis > 0 {
		return time.Duration(u.Policy.DeadlineMillis) * time.Millisecond
	}
	return r.cfg.Deadline
}

// patience is how long an attempt may hold writes: its deadline, or less.
func (r *Driver) patience(d upgradestate.Deployment) time.Duration {
	most := r.cfg.MaxHold
	if u := d.Upgrade; u != nil && u.Policy.MaxHoldMillis > 0 {
		most = time.Duration(u.Policy.MaxHoldMillis) * time.Millisecond
	}
	if deadline := r.deadline(d); most == 0 || most > deadline {
		return deadline
	}
	return most
}

func (r *Driver) whyOverdue(d upgradestate.Deployment) string {
	if most := r.patience(d); most < r.deadline(d) {
		return fmt.Sprintf("clients' writes were held for %s, the most that is allowed, and SWITCHING was in step %s", most, d.Upgrade.Step)
	}
	return fmt.Sprintf("SWITCHING passed its deadline of %s in step %s", r.deadline(d), d.Upgrade.Step)
}

func (r *Driver) overdue(d upgradestate.Deployment) bool {
	u := d.Upgrade
	return u != nil && u.State == upgradestate.Switching && u.Step != upgradestate.StepAbort &&
		time.Since(r.attemptSince) >= r.patience(d)
}

// untilDeadline is when the driver has to look again even if nothing changes; 0 is never.
func (r *Driver) untilDeadline(d upgradestate.Deployment) time.Duration {
	if d.Upgrade == nil || d.Upgrade.State != upgradestate.Switching || d.Upgrade.Step == upgradestate.StepAbort {
		return 0
	}
	return max(time.Millisecond, r.patience(d)-time.Since(r.attemptSince))
}

// heldBackLook is how often the readiness report of an upgrade that the record holds back is made anew.
const heldBackLook = 5 * time.Second

// lookAgain is when the driver has to look again even if no record arrives; 0 is never.
func (r *Driver) lookAgain(d upgradestate.Deployment) time.Duration {
	if left := r.untilDeadline(d); left > 0 {
		return left
	}
	switch u := d.Upgrade; {
	case u != nil && u.Step == upgradestate.StepNone && upgradestate.SwitchBlocker(d) != "":
		return heldBackLook // the record has to change first, and comes by itself
	case u != nil, len(upgradestate.Actions(d)) > 0:
		return min(max(time.Second, lookShare*r.looked), heldBackLook) // what kept it from moving may be gone
	}
	return 0
}

// lookShare bounds what the looks at the databases take of them and of this process, which are
// many commands where there are many kinds: the next comes after so many times what one took. A
// proof that ends, and a record that changes, are not waited for.
const lookShare = 8

// operationTimeout bounds one try of an operation: while writes are held, by the deadline, and in an
// abort, which has none, by a part of it: writes are still held, and a try that hangs must
// not cost what is left of their patience.
func (r *Driver) operationTimeout(d upgradestate.Deployment) time.Duration {
	if left := r.untilDeadline(d); left > 0 {
		return left
	}
	if d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepAbort {
		return r.deadline(d) / 4
	}
	return 30 * time.Second
}
