package upgradestate

// abort ends INITIAL_SYNCING at once and SWITCHING by way of StepAbort.
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
		if told := d.entry("upgrade", u.ID); told != nil {
			told.Outcome = outcomeOfAbort(e.Reason)
		}
		d.Upgrade = nil
		d.bindImages(d.Available)
		return nil
	case StepAbort:
		if u.Again && !e.Again {
			u.Again, u.AbortReason = false, e.Reason
		}
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
	default:
		return refused("abort: unknown step %q", u.Step)
	}
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

// openForAbort decides what a source kind still needs before its clients write again.
//
// An announced rename by identity, sent or not, is resolved: it has happened, or its
// destination is taken so that it no longer can (action Prevent). Its sender may be
// asleep, and would otherwise fence the kind after the abort; and the abort must not wait
// for a rename that the database holds up. Of the other classes the unfence ends a fence,
// set or not, and is not waited for either until then.
func (k *Kind) openForAbort() {
	if p := k.Pending; p != nil {
		switch p.Reason {
		case PendingFence:
			if k.Fence == classUUID {
				return
			}
			k.Fenced = p.To
		case PendingLast, PendingSeal, PendingOpen:
			return
		}
	}
	if k.Fence != classUUID && k.Fenced != "" {
		k.announceOpen()
	}
}

// prevented leaves a source kind where it is: its announced rename can no longer come.
func (d *Deployment) prevented(e Prevented) error {
	k := d.pendingKind(e.Version, e.Kind)
	u := d.Upgrade
	if k == nil || k.Pending.To != e.To || u == nil || u.Step != StepAbort || e.Version != d.CurrentVersion || !k.preventable() {
		return nil
	}
	k.Pending = nil
	return nil
}

// preventable reports whether the pending operation is a rename of a source kind that an abort
// need not wait for.
func (k Kind) preventable() bool {
	p := k.Pending
	return p != nil && k.Fence == classUUID && (p.Reason == PendingFence || p.Reason == PendingLast)
}

// aborted ends the attempt; the source's names, as confirmed, are the tokens again.
func (d *Deployment) aborted(e Aborted) error {
	u, err := d.running(e.ID, "aborted")
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
	u.State, u.Step = InitialSyncing, StepNone
	u.Attempt++
	u.ReadyShards = []int{}
	u.Failures++
	u.LastFailure = u.AbortReason
	u.Again, u.AbortReason, u.TargetSince = false, "", ""
	return nil
}
