package upgradestate

// abort ends INITIAL_SYNCING at once and SWITCHING through StepAbort.
func (d *Deployment) abort(e Abort) error {
	u := d.Upgrade
	if u == nil || (e.ID != "" && e.ID != u.ID) || (e.Attempt != 0 && e.Attempt != u.Attempt) {
		return nil
	}
	switch u.Step {
	case StepNone:
		if e.Again {
			return nil // there is no attempt to give up
		}
		// The upgrade goes away with its reason, so the history entry gets the reason here.
		if told := d.entry("upgrade", u.ID); told != nil {
			told.Outcome = outcomeOfAbort(e.Reason)
		}
		d.Upgrade = nil
		// The followed version may change with the end of the upgrade.
		d.bindImages(d.Available)
		return nil
	case StepAbort:
		// An operator's abort makes a retry final. The other way round nothing changes.
		if u.Again && !e.Again {
			u.Again, u.AbortReason = false, e.Reason
		}
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
	default:
		return refused("abort: unknown step %q", u.Step)
	}
	// A new attempt number makes reports that are still on their way outdated.
	u.Step = StepAbort
	u.Attempt++
	u.ReadyShards = []int{}
	u.AbortReason = e.Reason
	u.Again = e.Again && u.Policy.mayRetry(u.Failures)
	for _, k := range d.kinds(d.CurrentVersion) {
		k.openForAbort()
	}
	return nil
}

// openForAbort announces the next operation that a source kind needs before its clients write
// again.
//
// An announced rename by identity is resolved, sent or not: it has happened, or its destination is
// taken so that it cannot happen (action Prevent). A paused sender could otherwise fence the kind
// after the abort, and the abort must not wait for a rename that the database holds up. For the
// other classes an unfence ends the fence, set or not, so the abort does not wait for the fence.
func (k *Kind) openForAbort() {
	if p := k.Pending; p != nil {
		switch p.Reason {
		case PendingFence:
			if k.Fence == classUUID {
				return // Prevent resolves it
			}
			k.Fenced = p.To // it may be set, so it has to be removed
		// These are confirmed or prevented first. The confirmation calls openForAbort again.
		case PendingLast, PendingSeal, PendingOpen:
			return
		}
	}
	if k.Fence != classUUID && k.Fenced != "" {
		k.announceOpen()
	}
}

// prevented leaves a source kind at its name: the announced rename cannot happen any more.
func (d *Deployment) prevented(e Prevented) error {
	k := d.pendingKind(e.Version, e.Kind)
	u := d.Upgrade
	if k == nil || k.Pending.To != e.To || u == nil || u.Step != StepAbort || e.Version != d.CurrentVersion || !k.preventable() {
		return nil
	}
	k.Pending = nil
	return nil
}

// preventable reports whether the pending operation is a rename of a source kind that an abort need
// not wait for.
func (k Kind) preventable() bool {
	p := k.Pending
	return p != nil && k.Fence == classUUID && (p.Reason == PendingFence || p.Reason == PendingLast)
}

// aborted ends the attempt. The confirmed names of the source are tokens again.
func (d *Deployment) aborted(e Aborted) error {
	u, err := d.attempt(e.ID, e.Attempt, "aborted")
	if err != nil {
		return err
	}
	switch u.Step {
	case StepAbort:
	case StepNone, StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
		return outdated("aborted in step %q", u.Step)
	default:
		return refused("aborted: unknown step %q", u.Step)
	}
	source := d.kinds(d.CurrentVersion)
	// A pending rename could still move the source away from its writers.
	if !nonePending(source) {
		return refused("aborted: operations on %s are still to be completed: wait", d.CurrentVersion)
	}
	for _, k := range source {
		k.Sealed = false
		k.Fenced = ""
	}
	if !u.Again {
		d.Upgrade = nil
		d.bindImages(d.Available)
		return nil
	}
	// The next attempt starts from scratch: every shard has to report again.
	u.State, u.Step = InitialSyncing, StepNone
	u.Attempt++
	u.ReadyShards = []int{}
	u.Failures++
	u.LastFailure = u.AbortReason
	u.Again, u.AbortReason, u.TargetSince = false, "", ""
	return nil
}
