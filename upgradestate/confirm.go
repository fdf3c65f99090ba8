package upgradestate

// confirmed moves a kind to the result of its announced operation. After the last operation of a
// step it enters the next step.
func (d *Deployment) confirmed(e Confirmed) error {
	k := d.pendingKind(e.Version, e.Kind)
	if k == nil || k.Pending.To != e.To {
		return nil
	}
	if k.Pending.Reason == PendingOpen && k.Fenced != "" {
		// The own name is used again and again, so it does not identify this opening. From does.
		if k.unfenceable() {
			return refused("confirmed: %s of %s is to be unfenced: apply Unfenced with the fences that ended", e.Kind, e.Version)
		}
		if e.From != k.Pending.From {
			return refused("confirmed: %s of %s is opened from %s, not from %q", e.Kind, e.Version, k.Pending.From, e.From)
		}
	}
	k.confirm()
	d.forgetAnswer(e.Version)
	d.advance(k)
	return nil
}

// unfenced ends the fence of a kind.
func (d *Deployment) unfenced(e Unfenced) error {
	k := d.pendingKind(e.Version, e.Kind)
	if k == nil || k.Pending.Reason != PendingOpen || !k.unfenceable() || k.Pending.From != e.From {
		return nil
	}
	k.confirm()
	d.forgetAnswer(e.Version)
	d.advance(k)
	return nil
}

// forgetAnswer forgets the finding that a version's renames answer. Controllers may write under the
// new names, and another restore would undo that, but look like the same finding.
func (d *Deployment) forgetAnswer(version string) {
	d.namespaceOf(version).Answered = ""
}

// pendingKind returns a kind with a pending operation, to be modified in place, or nil.
func (d *Deployment) pendingKind(version, kind string) *Kind {
	for _, k := range d.kinds(version) {
		if k.Kind == kind && k.Pending != nil {
			return k
		}
	}
	return nil
}

// confirm applies the pending operation. No other function moves a kind.
func (k *Kind) confirm() {
	p := *k.Pending
	wasHidden, moved := k.Hidden, k.moves(p.Reason)
	k.Pending = nil
	if moved {
		k.Physical = p.To
	}
	switch p.Reason {
	case PendingFence:
		k.Fenced = p.To
		k.Hidden = k.Fixed && moved
	case PendingSeal:
		// A hidden kind keeps its fence: an existing one stays in force, and a missing one is not
		// needed. Other kinds are fenced by the seal itself, by every class but uuid.
		if !wasHidden && k.Fence != classUUID {
			k.Fenced = p.To
		}
		k.Hidden = k.Fixed && (wasHidden || moved)
	case PendingLast:
		k.Sealed = true
	case PendingOpen:
		k.Fenced = ""
		k.Hidden = false
	}
}

// advance enters the next step if the operation on k was the last one of this step.
func (d *Deployment) advance(k *Kind) {
	u := d.Upgrade
	if u == nil {
		return
	}
	switch u.Step {
	case StepFence:
		if nonePending(d.kinds(d.CurrentVersion)) {
			u.Step = StepDrain
		}
	case StepSealTarget:
		if nonePending(d.kinds(u.TargetVersion)) {
			d.sealSource()
		}
	case StepAbort:
		// The source kind may need another operation, such as an unfence after its rename.
		for _, own := range d.kinds(d.CurrentVersion) {
			if own == k {
				k.openForAbort()
			}
		}
	case StepNone, StepHold, StepDrain, StepSealSource:
	}
}
