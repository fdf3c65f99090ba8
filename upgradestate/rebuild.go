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

// Adopt replaces collections in the record that were recreated under their names, as a sharded
// cluster does when it moves a shard. The database refuses every process that knows the old ones,
// so no process has to be stopped. Adopt starts another epoch: servers rebuild their stacks and
// engines their plans. Nothing counts as in sync in the new epoch. The version that the latest
// switch left stays as it is until an upgrade to it begins.
//
// Epoch is the epoch of the decision. For another one the event is ErrOutdated. Adopt is refused
// during an upgrade or a data update that an operator began, and for collections of a version that is being retired. A
// repetition is a no-op.
type Adopt struct {
	Epoch       uint64
	Collections []Adopted
}

// Adopted is a kind of a version with the former (Was) and the present (Is) identity of its
// collection.
type Adopted struct{ Version, Kind, Was, Is string }

func (Adopt) event() {}

// adoptedEpochs is the number of epochs that Adopt advances. After a switch an engine watches for
// late changes during the next epoch. A step of two ends that engine.
const adoptedEpochs = 2

func (d *Deployment) adopt(e Adopt) error {
	if len(e.Collections) == 0 {
		return refused("adopt: the event names no collection")
	}
	kinds := make([]*Kind, len(e.Collections))
	for i, c := range e.Collections {
		for _, k := range d.kinds(c.Version) {
			if k.Kind == c.Kind {
				kinds[i] = k
			}
		}
		if kinds[i] == nil || c.Was == "" || c.Is == "" {
			return refused("adopt: the deployment has no collection of kind %s of %s", c.Kind, c.Version)
		}
	}
	done := 0
	for i, c := range e.Collections {
		if kinds[i].ID == c.Is {
			done++
		}
	}
	// A repetition after an unknown outcome.
	if done == len(kinds) {
		return nil
	}
	if d.Epoch != e.Epoch {
		return outdated("adopt in epoch %d, not %d", d.Epoch, e.Epoch)
	}
	switch {
	case d.Upgrade != nil:
		return refused("adopt: upgrade %s to %s runs: abort it first", d.Upgrade.ID, d.Upgrade.TargetVersion)
	case d.Update != nil && !d.runsPass():
		return refused("adopt: data update %s runs: cancel it first", d.Update.Name)
	// The retirement of another version must not keep the served one down.
	case d.Retire != nil && slices.ContainsFunc(e.Collections, func(c Adopted) bool { return c.Version == d.Retire.Version }):
		return refused("adopt: %s is being retired: wait until it ends", d.Retire.Version)
	}
	// All checks come before the first change, so that a refusal changes nothing.
	for i, c := range e.Collections {
		k := kinds[i]
		taken := func(o *Kind) bool { return o != k && o.ID == c.Is }
		switch {
		case k.ID != c.Was:
			return outdated("adopt: kind %s of %s is collection %s, not %s", c.Kind, c.Version, k.ID, c.Was)
		// An announced rename of a version that does not serve is completed with the new collection.
		case k.Pending != nil && c.Version == d.CurrentVersion:
			return refused("adopt: kind %s of %s is about to be renamed: wait until it ends", c.Kind, c.Version)
		// Two kinds must not share a collection.
		case slices.ContainsFunc(d.kinds(c.Version), taken):
			return refused("adopt: collection %s is another kind of %s", c.Is, c.Version)
		}
	}
	// A pass may wait for the former collection, and would block the adoption for ever.
	d.yieldPass("a collection was made anew")
	for i, c := range e.Collections {
		kinds[i].ID = c.Is
		d.addEntry(Entry{What: "adopt", ID: c.Kind, To: c.Version, Detail: "collection " + c.Is + " was made anew for " + c.Was})
	}
	// A new epoch voids the guards, plans and stacks of the old collections.
	d.newEpoch()
	return nil
}
