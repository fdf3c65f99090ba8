package upgradestate

import "slices"

// running returns the upgrade if it has the id, and ErrOutdated otherwise.
func (d *Deployment) running(id, what string) (*Upgrade, error) {
	if d.Upgrade == nil || d.Upgrade.ID != id {
		return nil, outdated("%s for upgrade %s", what, id)
	}
	return d.Upgrade, nil
}

// attempt is running for an event of an attempt; 0 stands for any.
func (d *Deployment) attempt(id string, n uint64, what string) (*Upgrade, error) {
	u, err := d.running(id, what)
	if err == nil && n != 0 && n != u.Attempt {
		return nil, outdated("%s in attempt %d of upgrade %s", what, n, id)
	}
	return u, err
}

// kinds returns the kinds of a version, to be modified in place.
func (d *Deployment) kinds(version string) []*Kind {
	var ks []*Kind
	if ns := d.namespaceOf(version); ns != nil {
		for i := range ns.Kinds {
			ks = append(ks, &ns.Kinds[i])
		}
	}
	return ks
}

func nonePending(ks []*Kind) bool {
	return !slices.ContainsFunc(ks, func(k *Kind) bool { return k.Pending != nil })
}

// announce makes the next name or mark of a kind pending.
func (k *Kind) announce(r PendingReason) {
	k.Pending = &Pending{Reason: r, From: k.Physical, To: physicalName(k.Kind, k.NextSeq)}
	// A number is used once, so that a late operation cannot match a later one.
	k.NextSeq++
}

// announceOpen makes the end of the kind's fence pending, and its own name if it is hidden. From
// identifies the fence that ends.
func (k *Kind) announceOpen() {
	if k.Hidden {
		k.Pending = &Pending{Reason: PendingOpen, From: k.Physical, To: k.Kind}
		return
	}
	k.Pending = &Pending{Reason: PendingOpen, From: k.Fenced, To: k.Physical}
}

// startSwitch enters SWITCHING/HOLD with every shard pending, under a new attempt.
func (d *Deployment) startSwitch(e StartSwitch) error {
	u, err := d.running(e.ID, "start of the switch")
	if err != nil {
		return err
	}
	switch u.Step {
	case StepNone:
		if e.Attempt != 0 && e.Attempt != u.Attempt {
			return outdated("start of the switch in attempt %d", e.Attempt)
		}
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
		return nil
	case StepAbort:
		return outdated("start of the switch in step %s", u.Step)
	default:
		return refused("switch: unknown step %q", u.Step)
	}
	if !AllReady(*d) {
		return refused("switch: shards %v have not reported ready: wait for them", PendingShards(*d))
	}
	// The driver has checked this, but the record may have changed since.
	if why := SwitchBlocker(*d); why != "" {
		return refused("switch: the upgrade waits for %s", why)
	}
	u.State, u.Step, u.TargetSince = Switching, StepHold, e.TargetSince
	// Reports from before the switch must not count as drained.
	u.Attempt++
	u.ReadyShards = []int{}
	return nil
}

// held enters StepFence.
func (d *Deployment) held(e Held) error {
	u, err := d.attempt(e.ID, e.Attempt, "held")
	if err != nil {
		return err
	}
	switch u.Step {
	case StepHold:
	case StepFence, StepDrain, StepSealTarget, StepSealSource:
		return nil
	case StepNone, StepAbort:
		return outdated("held in step %q", u.Step)
	default:
		return refused("held: unknown step %q", u.Step)
	}
	u.Step = StepFence
	// Announced in the same transition as the step, so that no driver sends an unknown name.
	for _, k := range d.kinds(d.CurrentVersion) {
		k.announce(PendingFence)
	}
	return nil
}

// drained enters StepSealTarget.
func (d *Deployment) drained(e Drained) error {
	u, err := d.attempt(e.ID, e.Attempt, "drained")
	if err != nil {
		return err
	}
	switch u.Step {
	case StepDrain:
	case StepSealTarget, StepSealSource:
		return nil
	case StepNone, StepHold, StepFence, StepAbort:
		return outdated("drained in step %q", u.Step)
	default:
		return refused("drained: unknown step %q", u.Step)
	}
	// A shard that has not drained would lose changes at the flip.
	if !AllReady(*d) {
		return refused("drained: shards %v have not reported: wait for them", PendingShards(*d))
	}
	u.Step = StepSealTarget
	// The seal stops controllers whose late writes would change the target after the flip.
	for _, k := range d.kinds(u.TargetVersion) {
		k.announce(PendingSeal)
	}
	return nil
}

// sealSource enters StepSealSource. It renames only kinds whose clients send the identity. Readers
// of the other kinds follow the Deployment.
func (d *Deployment) sealSource() {
	d.Upgrade.Step = StepSealSource
	for _, k := range d.kinds(d.CurrentVersion) {
		if k.Fence == classUUID {
			k.announce(PendingLast)
		}
	}
}

// flip makes the target current. The old namespace stays fenced and sealed.
func (d *Deployment) flip(e Flip) error {
	u := d.Upgrade
	if u == nil && d.LastSwitch != nil && d.LastSwitch.ID == e.ID {
		return nil
	}
	u, err := d.attempt(e.ID, e.Attempt, "flip")
	if err != nil {
		return err
	}
	switch u.Step {
	case StepSealSource:
	case StepNone, StepHold, StepFence, StepDrain, StepSealTarget, StepAbort:
		return outdated("flip in step %q", u.Step)
	default:
		return refused("flip: unknown step %q", u.Step)
	}
	// An unconfirmed rename could leave two writable namespaces.
	if !AllReady(*d) || !nonePending(d.kinds(d.CurrentVersion)) || !nonePending(d.kinds(u.TargetVersion)) {
		return refused("flip: not everything is confirmed yet: wait")
	}
	done := e.Switch.clone()
	done.ID, done.From, done.To, done.TransformHash, done.Before = u.ID, d.CurrentVersion, u.TargetVersion, u.TransformHash, ""
	done.Epoch, done.BeforeEpoch = d.Epoch, 0
	// The switch back needs to know by which transformation these records were made.
	if last := d.LastSwitch; last != nil && last.From == done.To && last.To == done.From {
		done.Before, done.BeforeGeneration, done.BeforeEpoch = last.TransformHash, last.Generation, last.Epoch
	}
	if m, ok := ImagesOf(*d, u.TargetVersion); ok {
		done.Generation = m.Generation
	}
	if done.Snapshot = u.Snapshot; done.Snapshot {
		done.Position, done.Before, done.BeforeGeneration, done.BeforeEpoch = "", "", 0, 0 // the two are not in sync
	}
	d.forgetRestored()
	for i := range d.Namespaces {
		if v := d.Namespaces[i].Version; v == done.From || v == done.To {
			d.Namespaces[i].Served = true
		}
	}
	done.Back = d.LastSwitch != nil && d.LastSwitch.From == u.TargetVersion && !d.LastSwitch.Back
	d.CurrentVersion = u.TargetVersion
	d.Epoch++
	d.Upgrade = nil
	d.LastSwitch = &done
	// Controllers announce anew: the possible upgrades are relative to the current version.
	d.Available = nil
	for _, k := range d.kinds(d.CurrentVersion) {
		k.Sealed = false
		switch {
		case k.Fence == classUUID:
			k.Fenced = "" // its new name is the new token
		case k.Hidden || k.Fenced != "":
			k.announceOpen()
		}
	}
	return nil
}

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
