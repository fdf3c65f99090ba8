package upgradestate

import "slices"

// Rebuild voids everything known about the records of a version that is not current. Its database
// was restored from a backup, or a comparison found differences that no known change explains. All
// records are made and compared again under a new generation (Images). All kinds are renamed, so
// that the database refuses controllers that worked before, and all ready reports become void. A
// running switch is aborted and retried as its policy allows. A switch to the snapshot is aborted
// for good, since the snapshot is no longer the same.
//
// Seen is the caller's view. After another generation or fence the event is ErrOutdated. It is also
// ErrOutdated during the switch of an upgrade to another version: retry after its end. Reason is
// for people.
type Rebuild struct {
	Version string
	Seen    Images
	Reason  string
	// Found are the places of kinds that are not where the record has them. A restored database has
	// older names, and a recreated collection has another identity.
	Found []Place
	// Finding identifies the finding of a restore (empty: unknown). A repetition is a no-op until a
	// rename that answers it is confirmed. No controller writes to the version before that.
	Finding string
}

func (Rebuild) event() {}

func (d *Deployment) rebuild(e Rebuild) error {
	ns := d.namespaceOf(e.Version)
	switch {
	case ns == nil:
		return refused("rebuild: unknown version %q", e.Version)
	case e.Version == d.CurrentVersion:
		return refused("rebuild: %s is the current version: only a version that follows it can be rebuilt", e.Version)
	case Retired(*d, e.Version):
		return refused("rebuild: %s is retired", e.Version)
	case ns.Images != e.Seen:
		return outdated("rebuild of %s", e.Version)
	}
	u := d.Upgrade
	if u != nil && u.TargetVersion != e.Version && u.State == Switching {
		return outdated("rebuild of %s during the switch to %s", e.Version, u.TargetVersion)
	}
	// Before the new names are announced, since the old ones may use up numbers.
	moved, err := d.find(e)
	if err != nil {
		return err
	}
	if !moved && ns.pending() && e.Finding != "" && ns.Answered == e.Finding {
		return nil // another controller found it first
	}
	m := &ns.Images
	last := d.LastSwitch
	left := last != nil && last.From == e.Version && last.To == d.CurrentVersion && last.Position != ""
	if m.Epoch != d.Epoch && !moved && !left && (u == nil || u.TargetVersion != e.Version) {
		return nil // nothing was known about it
	}
	if left {
		// A plan from this position would take everything before it for synced.
		next := last.clone()
		next.Position = ""
		d.LastSwitch = &next
	}
	// A new generation gives engines a new plan and new checkpoints.
	if m.Epoch == d.Epoch {
		m.Generation++
		m.Fences = 0
	}
	// Shards have compared with records that no longer count.
	if u != nil && u.TargetVersion == e.Version {
		if err := d.voidReports(e.Reason); err != nil {
			return err
		}
	}
	d.keepOut(e.Version)
	ns.Answered = e.Finding
	d.addEntry(Entry{What: "rebuild", To: e.Version, Detail: e.Reason})
	return nil
}

// voidReports ends the attempt at the switch, or voids the reports towards it. The attempt number
// changes, so that no report of an earlier generation counts.
func (d *Deployment) voidReports(why string) error {
	u := d.Upgrade
	switch u.Step {
	case StepNone:
		u.Attempt++
		u.ReadyShards = []int{}
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
		return d.abort(Abort{ID: u.ID, Reason: why, Again: !u.Snapshot})
	case StepAbort:
		return nil
	default:
		return refused("rebuild: unknown step %q", u.Step)
	}
}

// find moves kinds to the places where they were found, and reports whether any was elsewhere. An
// announced rename that may still happen stays announced: its sender finds the collection under the
// old name.
func (d *Deployment) find(e Rebuild) (moved bool, err error) {
	kinds := d.kinds(e.Version)
	for _, f := range e.Found {
		i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.Kind == f.Kind })
		if i < 0 || f.Name == "" || f.ID == "" && kinds[i].ID != "" {
			return false, refused("rebuild: kind %q of %s: the name or identity of the collection is missing", f.Kind, e.Version)
		}
		k := kinds[i]
		if slices.ContainsFunc(kinds, func(o *Kind) bool { return o != k && f.ID != "" && o.ID == f.ID }) {
			return false, refused("rebuild: collection %s is another kind of %s", f.ID, e.Version)
		}
		announced := k.Pending != nil && f.Name == k.Pending.To
		if k.ID == f.ID && (f.Name == k.Physical || announced) {
			continue
		}
		// The restored name may be newer than the record, and must not be announced again.
		if seq, ok := seqOf(k.Kind, f.Name); ok && seq >= k.NextSeq {
			k.NextSeq = seq + 1
		}
		k.ID, k.Physical, k.Pending = f.ID, f.Name, nil
		k.Hidden = k.Fixed && k.Physical != k.Kind
		moved = true
	}
	return moved, nil
}
