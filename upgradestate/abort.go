package upgradestate

// abort ends INITIAL_SYNCING at once and SWITCHING by way of StepAbort.
func (d *Deployment) abort(e Abort) error {
	u := d.Upgrade
	if u == nil || (e.ID != "" && e.ID != u.ID) {
		return nil
	}
	switch u.Step {
	case StepNone:
		if told := d.entry("upgrade", u.ID); told != nil {
			told.Outcome = outcomeOfAbort(e.Reason)
		}
		d.Upgrade = nil
		return nil
	case StepAbort:
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
	default:
		return refused("abort: unknown step %q", u.Step)
	}
	u.Step = StepAbort
	u.Attempt++
	u.ReadyShards = []int{}
	u.AbortReason = e.Reason
	for _, k := range d.kinds(d.CurrentVersion) {
		k.openForAbort()
	}
	return nil
}

// openForAbort decides what a source kind still needs before its clients write again.
// An announced rename, sent or not, must be completed: its sender may be asleep, and
// would otherwise fence the kind after the abort. A mark is not waited for, so that a
// fence that cannot be set does not prevent the abort; its lift ends it, set or not.
func (k *Kind) openForAbort() {
	if p := k.Pending; p != nil {
		switch p.Reason {
		case PendingFence:
			if k.moves(p.Reason) {
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

// aborted ends the upgrade; the source's names, as confirmed, are the tokens again.
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
		return refused("aborted: acts on %s are still to be completed: wait", d.CurrentVersion)
	}
	for _, k := range source {
		k.Sealed = false
		k.Fenced = ""
	}
	d.Upgrade = nil
	return nil
}
