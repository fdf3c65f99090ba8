package switchover

import (
	"fmt"
	"maps"
	"time"

	"dbcontroller.dev/upgradestate"
)

// observe records when this driver first saw an attempt and each of its steps.
func (r *Driver) observe(d upgradestate.Deployment) {
	now := time.Now()
	r.observeFailure(d, now)
	var seen attempt
	var step upgradestate.Step
	if u := d.Upgrade; u != nil && u.State == upgradestate.Switching {
		seen, step = attempt{u.ID, u.Attempt}, u.Step
		if step == upgradestate.StepAbort {
			seen.n = r.attempt.n // an abort belongs to the attempt that it ends
		}
	}
	if step != upgradestate.StepSealTarget && step != upgradestate.StepSealSource {
		r.leaveReading() // aborted, or flipped by another driver
	}
	if seen != r.attempt {
		// A new attempt starts with empty timings and no position, so nothing of the last one leaks
		// in.
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

// phase is the name under which Switch.Millis reports a step's time; "" for a step that is not
// reported.
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

// measured describes the switch that is about to flip. The sealing renames count as part of the
// flip.
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

// policy is the upgrade's policy, with the configured values where it says nothing.
func (r *Driver) policy(d upgradestate.Deployment) upgradestate.Policy {
	if d.Upgrade == nil {
		return r.cfg.Policy
	}
	return d.Upgrade.Policy.Or(r.cfg.Policy)
}

// deadline is the longest time that the upgrade may stay in SWITCHING.
func (r *Driver) deadline(d upgradestate.Deployment) time.Duration {
	return time.Duration(r.policy(d).DeadlineMillis) * time.Millisecond
}

// patience is the longest time that an attempt may hold writes. It never exceeds the deadline.
func (r *Driver) patience(d upgradestate.Deployment) time.Duration {
	most := time.Duration(r.policy(d).MaxHoldMillis) * time.Millisecond
	if deadline := r.deadline(d); most == 0 || most > deadline {
		return deadline
	}
	return most
}

func (r *Driver) whyOverdue(d upgradestate.Deployment) string {
	if most := r.patience(d); most < r.deadline(d) {
		return fmt.Sprintf("clients' writes were held for %s, the limit, and SWITCHING was in step %s", most, d.Upgrade.Step)
	}
	return fmt.Sprintf("SWITCHING passed its deadline of %s in step %s", r.deadline(d), d.Upgrade.Step)
}

// overdue reports whether the attempt has held writes for too long. An abort is never overdue.
func (r *Driver) overdue(d upgradestate.Deployment) bool {
	u := d.Upgrade
	return u != nil && u.State == upgradestate.Switching && u.Step != upgradestate.StepAbort &&
		time.Since(r.attemptSince) >= r.patience(d)
}

// untilDeadline is the time until the driver must act even if nothing changes; 0 means never.
func (r *Driver) untilDeadline(d upgradestate.Deployment) time.Duration {
	if d.Upgrade == nil || d.Upgrade.State != upgradestate.Switching || d.Upgrade.Step == upgradestate.StepAbort {
		return 0
	}
	// At least a millisecond: 0 would mean never, and an overdue attempt needs its pass now.
	return max(time.Millisecond, r.patience(d)-time.Since(r.attemptSince))
}

// heldBackLook is the interval of readiness reports while the record itself blocks the switch.
const heldBackLook = 5 * time.Second

// lookAgain is the time until the next pass if no new record arrives; 0 means never.
func (r *Driver) lookAgain(d upgradestate.Deployment) time.Duration {
	if left := r.untilDeadline(d); left > 0 {
		return left
	}
	switch u := d.Upgrade; {
	case u != nil && u.Step == upgradestate.StepNone && upgradestate.SwitchBlocker(d) != "":
		return heldBackLook // the record must change first; the watch delivers that
	case u != nil, len(upgradestate.Actions(d)) > 0:
		return min(max(time.Second, lookShare*r.looked), heldBackLook) // a blocker outside the record may be gone
	case r.cfg.Waits != nil:
		return heldBackLook // there may be a new one
	}
	return 0
}

// lookShare limits the load of readiness checks, which are many commands when there are many kinds.
// The next check waits this many times as long as the last one took. A changed record and News end
// that wait.
const lookShare = 8

// operationTimeout bounds one try of an operation. While servers hold writes, the deadline is the
// bound. An abort has no deadline, but servers still hold writes, so each of its tries gets a
// quarter of one: a try that hangs must not use up the clients' patience.
func (r *Driver) operationTimeout(d upgradestate.Deployment) time.Duration {
	if left := r.untilDeadline(d); left > 0 {
		return left
	}
	if d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepAbort {
		return r.deadline(d) / 4
	}
	return 30 * time.Second
}
