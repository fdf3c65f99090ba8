package upgradestate

import (
	"fmt"
	"slices"
)

// Restored records that the database of the current version is older than known: it was restored
// from a backup. The version that follows has changes that the restore has undone, and an operator
// decides which of the two counts. Until then nothing is written to the following version, and no
// switch starts.
type Restored struct {
	Version string `json:"version"`
	At      string `json:"at,omitempty"` // RFC 3339, for people
	What    string `json:"what"`         // the finding, for people
	// Older means that the backup is older than facts in the record about its collections, such as
	// the latest switch. No decision is then possible here. A recovery is needed.
	Older bool `json:"older,omitempty"`
}

// FoundRestored records a restore of the current version, once, and fences the following version,
// so that it stays as it is. It aborts a running switch. In an existing entry it changes only
// Older. For another version it is ErrOutdated; the event for that is Rebuild. Epoch is the epoch of
// the finding; for another one the event is ErrOutdated, since another controller may have recorded
// the same restore.
//
// Finding identifies the finding (empty: unknown). While no other version follows, it begins only one
// epoch, because nothing was copied in that epoch.
type FoundRestored struct {
	Restored Restored
	Epoch    uint64
	Finding  string
}

// FollowRestored decides for the restored state: it starts another epoch, in which the following
// version is copied and compared as a whole and no earlier guard counts. Epoch is the epoch of the
// decision; for another one the event is ErrOutdated. Without a recorded restore it is a no-op.
type FollowRestored struct {
	Version string
	Epoch   uint64
}

func (FoundRestored) event()  {}
func (FollowRestored) event() {}

// WasRestored returns the recorded restore of the current version. The result ok is false if there
// is none.
func WasRestored(d Deployment) (r Restored, ok bool) {
	i := slices.IndexFunc(d.Restored, func(r Restored) bool { return r.Version == d.CurrentVersion })
	if i < 0 {
		return Restored{}, false
	}
	return d.Restored[i], true
}

// line describes a restore for an operator: the finding, its database, and the two commands.
func (r Restored) line() string {
	if r.Older {
		return fmt.Sprintf("a decision about %s: its database was restored from a backup that is older than the names of its collections (%s): stop all processes, then run 'recover --current %s' to continue with the restored data, or 'recover --current' with another version to continue with the data of that version", r.Version, r.What, r.Version)
	}
	return fmt.Sprintf("a decision about %s: its database was restored from a backup (%s): 'restored --follow' rebuilds the other version from the restored data, 'restored --keep' continues with the other version's data", r.Version, r.What)
}

// RestoredLine describes a restore of the current version for an operator, or returns "".
func RestoredLine(d Deployment) string {
	if r, ok := WasRestored(d); ok {
		return r.line()
	}
	return ""
}

func (d *Deployment) foundRestored(e FoundRestored) error {
	r := e.Restored
	if _, known := d.Namespace(r.Version); !known || r.What == "" {
		return refused("found restored: %q: the version or the finding is missing", r.Version)
	}
	if r.Version != d.CurrentVersion {
		return outdated("found restored: %s is not served", r.Version)
	}
	if e.Epoch != d.Epoch {
		return outdated("found restored in epoch %d, not %d", e.Epoch, d.Epoch)
	}
	i := slices.IndexFunc(d.Restored, func(has Restored) bool { return has.Version == r.Version })
	_, followed := Followed(*d)
	if !followed && !r.Older && d.Update == nil && d.Retire == nil && (i < 0 || d.Restored[i].Older) {
		if fresh := d.answer(r.Version, e.Finding); !fresh && i < 0 {
			return nil // another controller found it first
		}
		// No other version has newer data. Earlier copies of this epoch no longer count.
		d.forgetRestored()
		d.newEpoch()
		d.addEntry(Entry{What: "restored", From: r.Version, Detail: r.What + "; no other version followed it"})
		return nil
	}
	if i >= 0 {
		d.Restored[i].Older = r.Older // a further restore, or an abort of a switch, may change it
		return nil
	}
	if u := d.Upgrade; u != nil && !u.Snapshot {
		if err := d.voidReports(fmt.Sprintf("the database of %s was restored from a backup", r.Version)); err != nil {
			return err
		}
	}
	// The following version may hold the only copy of undone changes, so late writers are kept out.
	if a, ok := Followed(*d); ok && (d.Upgrade == nil || !d.Upgrade.Snapshot) {
		d.keepOut(a.TargetVersion)
	}
	d.Restored = append(d.Restored, r)
	d.addEntry(Entry{What: "restored", From: r.Version, Detail: r.What})
	return nil
}

func (d *Deployment) followRestored(e FollowRestored) error {
	if r, found := WasRestored(*d); found && r.Older && e.Version == d.CurrentVersion {
		return refused("restored: the deployment waits for %s", r.line())
	} else if !found || e.Version != d.CurrentVersion {
		return nil
	}
	switch u := d.Upgrade; {
	case d.Epoch != e.Epoch:
		return outdated("follow restored in epoch %d, not %d", d.Epoch, e.Epoch)
	case u != nil && (u.Step != StepNone || u.Snapshot):
		return refused("restored: upgrade %s to %s is switching: abort it, or wait until it ends", u.ID, u.TargetVersion)
	case d.Update != nil && !d.runsPass():
		return refused("restored: data update %s runs, and the restore undid parts of it: cancel it, and begin it again afterwards", d.Update.Name)
	}
	// All checks are done. The decision takes effect in one transition.
	d.yieldPass("the other version is rebuilt from the restored data")
	d.forgetRestored()
	d.newEpoch()
	if u := d.Upgrade; u != nil {
		u.Attempt++
		u.ReadyShards = []int{}
	}
	d.bindImages(d.Available)
	d.addEntry(Entry{What: "follow-restored", To: e.Version, Detail: "the other version is rebuilt from it"})
	return nil
}

// forgetRestored removes the recorded restore of the current version.
func (d *Deployment) forgetRestored() {
	d.Restored = slices.DeleteFunc(d.Restored, func(r Restored) bool { return r.Version == d.CurrentVersion })
}

// answer notes that the caller answers a finding about a version's database. It returns false if the
// finding is answered already.
func (d *Deployment) answer(version, finding string) bool {
	ns := d.namespaceOf(version)
	if finding != "" && ns.Answered == finding {
		return false
	}
	ns.Answered = finding
	return true
}

// newEpoch starts an epoch without a switch. Nothing counts as in sync in it.
func (d *Deployment) newEpoch() {
	d.Epoch += adoptedEpochs
	// The records may be older than the passes over them.
	d.Following = nil
	// A reverse sync from the old position would miss the break.
	if d.LastSwitch != nil {
		last := d.LastSwitch.clone()
		last.Position, last.Before, last.BeforeGeneration, last.Outdated = "", "", 0, true
		d.LastSwitch = &last
	}
}

// keeps reports whether an operator may continue with a version as it is because the current one
// was restored. The version must have been followed until then.
func (d *Deployment) keeps(version string) bool {
	r, restored := WasRestored(*d)
	return restored && !r.Older && slices.ContainsFunc(d.Namespaces, func(ns Namespace) bool {
		return ns.Version == version && ns.Images.Epoch == d.Epoch
	})
}
