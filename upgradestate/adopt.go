package upgradestate

import "slices"

// Adopt replaces collections in the record that were recreated under their names, as a sharded
// cluster does when it moves a shard. The database refuses every process that knows the old ones,
// so no process has to be stopped. Adopt starts another epoch: servers rebuild their stacks and
// engines their plans. Nothing counts as in sync in the new epoch. The version that the latest
// switch left stays as it is until an upgrade to it begins.
//
// Epoch is the epoch of the decision. For another one the event is ErrOutdated. Adopt is refused
// during an upgrade or a data update, and for collections of a version that is being retired. A
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
	case d.Update != nil:
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
	for i, c := range e.Collections {
		kinds[i].ID = c.Is
		d.addEntry(Entry{What: "adopt", ID: c.Kind, To: c.Version, Detail: "collection " + c.Is + " was made anew for " + c.Was})
	}
	// A new epoch voids the guards, plans and stacks of the old collections.
	d.newEpoch()
	return nil
}
