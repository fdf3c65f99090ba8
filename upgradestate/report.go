package upgradestate

import "slices"

// report adds ready shards if the report is for this phase and, in SWITCHING, for the fences in
// force.
func (d *Deployment) report(e Report) error {
	u := d.Upgrade
	if u == nil || u.ID != e.ID || u.State != e.State || u.Attempt != e.Attempt {
		return outdated("report for %s %s attempt %d", e.ID, e.State, e.Attempt)
	}
	for _, s := range e.Shards {
		if s < 0 || s >= d.RingSize {
			return refused("report: shard %d is not in the ring of %d", s, d.RingSize)
		}
	}
	switch u.Step {
	case StepNone:
		u.addReady(e.Shards)
		return nil
	case StepDrain:
		// A shard that has seen other fences has not drained to these.
		if e.Fences != FenceNames(*d) {
			return outdated("report for fences %q, in force are %q", e.Fences, FenceNames(*d))
		}
		u.addReady(e.Shards)
		return nil
	case StepSealTarget, StepSealSource:
		// All shards have reported, so this can be a repetition after an unknown outcome.
		if e.Fences != FenceNames(*d) {
			return outdated("report for fences %q, in force are %q", e.Fences, FenceNames(*d))
		}
		return nil
	// No fence is in force yet, or none any more, so no shard can have drained.
	case StepHold, StepFence, StepAbort:
		return outdated("report in step %s", u.Step)
	default:
		return refused("report: unknown step %q", u.Step)
	}
}

// withdraw removes reports while no later step depends on them.
func (d *Deployment) withdraw(e Withdraw) error {
	u := d.Upgrade
	if u == nil || u.ID != e.ID {
		return outdated("withdraw for %s", e.ID)
	}
	switch u.Step {
	case StepNone, StepHold, StepFence, StepDrain:
		u.ReadyShards = slices.DeleteFunc(u.ReadyShards, func(s int) bool { return slices.Contains(e.Shards, s) })
		return nil
	case StepSealTarget, StepSealSource, StepAbort:
		return outdated("withdraw in step %s", u.Step)
	default:
		return refused("withdraw: unknown step %q", u.Step)
	}
}

func (u *Upgrade) addReady(shards []int) {
	u.ReadyShards = append(u.ReadyShards, shards...)
	slices.Sort(u.ReadyShards)
	u.ReadyShards = slices.Compact(u.ReadyShards)
}
