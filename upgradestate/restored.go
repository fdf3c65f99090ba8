package upgradestate

import (
	"fmt"
	"slices"
)

// Restored is that the database of the version that is served is older than what was known to be
// in it: somebody restored a backup. What follows it has changes that the restore has undone. A
// person decides which of the two counts. Until then nothing is written to the version that
// follows, and no switch begins.
type Restored struct {
	Version string `json:"version"`
	At      string `json:"at,omitempty"` // RFC 3339, for people
	What    string `json:"what"`         // what was seen, for people
	// Older: it is from before what the record knows of its collections, such as the latest switch.
	// Then neither of the two can be decided here, and a recovery is needed.
	Older bool `json:"older,omitempty"`
}

// FoundRestored notes it, once, and keeps everybody out of the version that follows, so that it
// stays as it is. A switch that runs is given up. Of what is noted already it changes Older alone.
// One of another version is ErrOutdated: it is Rebuild that is meant.
type FoundRestored struct{ Restored Restored }

// FollowRestored says that the restored state counts: another epoch begins, in which the version
// that follows is copied and compared as a whole and no guard of before counts. Epoch is the one
// that it was decided in; any other is ErrOutdated. Without a finding it is a no-op.
type FollowRestored struct {
	Version string
	Epoch   uint64
}

func (FoundRestored) event()  {}
func (FollowRestored) event() {}

// WasRestored is what was found about the version that is served; ok is false for nothing.
func WasRestored(d Deployment) (r Restored, ok bool) {
	i := slices.IndexFunc(d.Restored, func(r Restored) bool { return r.Version == d.CurrentVersion })
	if i < 0 {
		return Restored{}, false
	}
	return d.Restored[i], true
}

// line is what an operator reads of it: what was seen where, and the two verbs.
func (r Restored) line() string {
	if r.Older {
		return fmt.Sprintf("a decision about %s, whose database was restored from a backup that is older than its collections' names (%s): stop all processes, then 'recover --current %s' goes on with the restored data, and 'recover --current' with another version with that one's", r.Version, r.What, r.Version)
	}
	return fmt.Sprintf("a decision about %s, whose database was restored from a backup (%s): 'restored --follow' corrects the other version to it, 'restored --keep' goes on with the other version's data", r.Version, r.What)
}

// RestoredLine is what an operator reads of a restore of the version that is served; "" is none.
func RestoredLine(d Deployment) string {
	if r, ok := WasRestored(d); ok {
		return r.line()
	}
	return ""
}

func (d *Deployment) foundRestored(e FoundRestored) error {
	r := e.Restored
	if _, known := d.Namespace(r.Version); !known || r.What == "" {
		return refused("found restored: %q: it is not said what was found where", r.Version)
	}
	if r.Version != d.CurrentVersion {
		return outdated("found restored: %s is not served", r.Version)
	}
	i := slices.IndexFunc(d.Restored, func(has Restored) bool { return has.Version == r.Version })
	_, followed := Followed(*d)
	if !followed && !r.Older && d.Update == nil && d.Retire == nil && (i < 0 || d.Restored[i].Older) {
		// Nobody has other data. What was copied before in this epoch counts no more.
		d.forgetRestored()
		d.newEpoch()
		d.addEntry(Entry{What: "restored", From: r.Version, Detail: r.What + "; no other version followed it"})
		return nil
	}
	if i >= 0 {
		d.Restored[i].Older = r.Older // it was restored again, or a switch was given up since
		return nil
	}
	if u := d.Upgrade; u != nil && !u.Snapshot {
		if err := d.voidReports(fmt.Sprintf("the database of %s was restored from a backup", r.Version)); err != nil {
			return err
		}
	}
	if a, ok := Followed(*d); ok && (d.Upgrade == nil || !d.Upgrade.Snapshot) {
		d.keepOut(a.TargetVersion)
	}
	d.Restored = append(d.Restored, r)
	d.addEntry(Entry{What: "restored", From: r.Version, Detail: r.What})
	return nil
}

func (d *Deployment) followRestored(e FollowRestored) error {
	if r, found := WasRestored(*d); found && r.Older && e.Version == d.CurrentVersion {
		return refused("restored: it waits for %s", r.line())
	} else if !found || e.Version != d.CurrentVersion {
		return nil
	}
	switch u := d.Upgrade; {
	case d.Epoch != e.Epoch:
		return outdated("follow restored in epoch %d, not %d", d.Epoch, e.Epoch)
	case u != nil && (u.Step != StepNone || u.Snapshot):
		return refused("restored: upgrade %s to %s is switching: abort it, or wait for its end", u.ID, u.TargetVersion)
	case d.Update != nil:
		return refused("restored: data update %s runs, and parts of it are undone: cancel it, and begin it again afterwards", d.Update.Name)
	case d.Retire != nil:
		return refused("restored: %s is being retired: wait for its end", d.Retire.Version)
	}
	d.forgetRestored()
	d.newEpoch()
	if u := d.Upgrade; u != nil {
		u.Attempt++
		u.ReadyShards = []int{}
	}
	d.bindImages(d.Available)
	d.addEntry(Entry{What: "follow-restored", To: e.Version, Detail: "the other version is made anew from it"})
	return nil
}

// forgetRestored forgets what was found about the version that is served.
func (d *Deployment) forgetRestored() {
	d.Restored = slices.DeleteFunc(d.Restored, func(r Restored) bool { return r.Version == d.CurrentVersion })
}

// newEpoch begins an epoch without a switch. Nothing counts as in sync in it.
func (d *Deployment) newEpoch() {
	d.Epoch += adoptedEpochs
	if d.LastSwitch != nil {
		last := d.LastSwitch.clone()
		last.Position, last.Before, last.BeforeGeneration, last.Snapshot = "", "", 0, true
		d.LastSwitch = &last
	}
}

// keeps reports whether a person may go on with a version as it is, because the one that is served
// was restored: it was followed until then.
func (d *Deployment) keeps(version string) bool {
	r, restored := WasRestored(*d)
	return restored && !r.Older && slices.ContainsFunc(d.Namespaces, func(ns Namespace) bool {
		return ns.Version == version && ns.Images.Epoch == d.Epoch
	})
}
