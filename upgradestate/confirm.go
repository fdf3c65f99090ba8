package upgradestate

// confirmed moves a kind to where its announced operation has brought it, and goes on to the
// next step after the last operation of a step.
func (d *Deployment) confirmed(e Confirmed) error {
	k := d.pendingKind(e.Version, e.Kind)
	if k == nil || k.Pending.To != e.To {
		return nil
	}
	if k.Pending.Reason == PendingOpen && k.Fenced != "" {
		// The own name comes back again and again, so it does not say which opening this is.
		if k.unfenceable() {
			return refused("confirmed: %s of %s is to be unfenced: apply Unfenced with what ended", e.Kind, e.Version)
		}
		if e.From != k.Pending.From {
			return refused("confirmed: %s of %s is opened from %s, not from %q", e.Kind, e.Version, k.Pending.From, e.From)
		}
	}
	k.confirm()
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
	d.advance(k)
	return nil
}

// pendingKind returns the kind, to be modified, if an operation on it is pending.
func (d *Deployment) pendingKind(version, kind string) *Kind {
	for _, k := range d.kinds(version) {
		if k.Kind == kind && k.Pending != nil {
			return k
		}
	}
	return nil
}

// confirm is the only place where a kind moves.
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
		// The rename of a hidden kind changes nothing for applications: what was fenced
		// stays so by the same fence, what was not needs no lifting. The other classes fence.
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

// advance enters the next step if the operation on k was the last that this one waited for.
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
		for _, own := range d.kinds(d.CurrentVersion) {
			if own == k {
				k.openForAbort()
			}
		}
	case StepNone, StepHold, StepDrain, StepSealSource:
	}
}
