package upgradestate

import (
	"fmt"
	"slices"
)

// Following is a data update that follows the keys of another deployment's records. It begins by
// itself after each switch of that deployment to the keys that it writes. It goes over all records
// again until a pass finds nothing new: clients that are slow may still write the other keys, and
// some keys can be looked up only later.
type Following struct {
	Task       string `json:"task"`              // Update.Name
	Deployment string `json:"deployment"`        // whose records the keys belong to
	Version    string `json:"version"`           // API version of that deployment that has the keys
	Switch     string `json:"switch"`            // SwitchID of that deployment's switch
	Epoch      uint64 `json:"epoch,omitempty"`   // of this deployment during the passes; 0: unknown
	Run        string `json:"run"`               // Update.ID of the latest pass
	Passes     int    `json:"passes"`            // since that switch
	Changed    int64  `json:"changed"`           // records, in all of these passes
	Failed     int64  `json:"failed,omitempty"`  // records, in the latest complete pass
	Outcome    string `json:"outcome,omitempty"` // of the latest pass; empty while it runs
	Again      bool   `json:"again,omitempty"`   // a further pass is due
}

// SwitchID returns the identity of the latest switch for deployments that follow it, or "". Records
// of earlier recoveries have a switch without an ID. Its epoch then identifies it.
func SwitchID(d Deployment) string {
	switch last := d.LastSwitch; {
	case last == nil:
		return ""
	case last.ID == "":
		return fmt.Sprintf("epoch %d", d.Epoch)
	default:
		return last.ID
	}
}

// Follows says which switch of another deployment a data update follows, and with which pass: the
// first is 1. Switch is the SwitchID of the other deployment. See Following.
type Follows struct {
	Deployment, Version, Switch string
	Pass                        int
}

// MaxPasses bounds the passes after one switch. Programs that go on writing the other keys would
// otherwise cause passes for ever.
const MaxPasses = 5

// MaxFollowing bounds the entries, to keep the record small. An entry stays when its task is removed
// from the configuration. More tasks would evict each other's entries, and their passes would not
// end.
const MaxFollowing = 64

// FollowingOf returns the passes of an update that begins by itself. ok is false if it has not
// begun yet.
func FollowingOf(d Deployment, task string) (f Following, ok bool) {
	if i := d.followingAt(task); i >= 0 {
		return d.Following[i], true
	}
	return Following{}, false
}

func (d *Deployment) followingAt(task string) int {
	return slices.IndexFunc(d.Following, func(f Following) bool { return f.Task == task })
}

// mayFollow reports whether a pass is due. Several controllers decide to begin it, each on a record
// that may have changed since, so a refusal is ErrOutdated.
func (d *Deployment) mayFollow(u Update, e Follows) error {
	if e.Deployment == "" || e.Version == "" || e.Switch == "" {
		return refused("update %s: the deployment, version and switch that it follows are all needed", u.Name)
	}
	_, restored := WasRestored(*d)
	switch up := d.Upgrade; {
	case u.Version != d.CurrentVersion, d.Update != nil, switching(*d):
		return outdated("update %s cannot begin by itself now", u.Name)
	// It is still open which records stay.
	case restored:
		return outdated("update %s waits for a decision about a restored database", u.Name)
	// The switch back would have to wait for an update that no operator began.
	case up != nil && d.leadsBack(up.TargetVersion, up.Snapshot):
		return outdated("update %s waits for the rollback", u.Name)
	}
	due := 1
	if f, known := FollowingOf(*d, u.Name); known && f.Counts(*d, e.Switch) {
		if due = f.Passes + 1; !f.Again {
			return outdated("update %s has followed switch %s", u.Name, e.Switch)
		}
	}
	if e.Pass != due {
		return outdated("pass %d of update %s", e.Pass, u.Name)
	}
	return nil
}

// Counts reports whether the passes are those after this switch of the other deployment. After a
// switch of this deployment they do not count: the records may have come back from another version,
// with the keys that they had there.
func (f Following) Counts(d Deployment, after string) bool {
	return f.Switch == after && (f.Epoch == 0 || f.Epoch == d.Epoch)
}

// leadsBack reports whether an upgrade to a version is a rollback. After a rollback the version that
// it left is the one that leads forward.
func (d *Deployment) leadsBack(version string, snapshot bool) bool {
	return snapshot || version == PreviousVersion(*d) && !d.LastSwitch.Back
}

// follow records a pass that begins, in the same transition. So no pass is lost or begun twice,
// whenever a controller stops.
func (d *Deployment) follow(u Update, e Follows) {
	next := Following{Task: u.Name, Deployment: e.Deployment, Version: e.Version, Switch: e.Switch}
	if i := d.followingAt(u.Name); i >= 0 {
		if before := d.Following[i]; before.Counts(*d, e.Switch) {
			next = before
		}
		d.Following = slices.Delete(d.Following, i, i+1)
	}
	next.Run, next.Passes, next.Outcome, next.Again, next.Epoch = u.ID, e.Pass, "", false, d.Epoch
	d.Following = append(d.Following, next) // the latest last
	if over := len(d.Following) - MaxFollowing; over > 0 {
		d.Following = slices.Delete(d.Following, 0, over)
	}
}

// endPass records the end of the running update, if it is a pass. complete is false if it was ended
// before it had seen all records. again then decides whether a further pass is due.
func (d *Deployment) endPass(outcome string, complete, again bool) {
	i := slices.IndexFunc(d.Following, func(f Following) bool { return f.Run == d.Update.ID })
	if i < 0 {
		return
	}
	f, count := &d.Following[i], d.Update.Count
	f.Changed += count.Changed
	f.Outcome, f.Again = outcome, again
	if !complete {
		return
	}
	// Equal failures of two passes will not go away by a third one.
	f.Again = count.Changed > 0 || count.Failed != f.Failed
	f.Failed = count.Failed
	if f.Again && f.Passes >= MaxPasses {
		f.Again = false
		f.Outcome = fmt.Sprintf("given up after %d passes, because the last one still found something: %s", f.Passes, outcome)
	}
}

// runsPass reports whether the running update is a pass.
func (d *Deployment) runsPass() bool {
	return d.Update != nil && slices.ContainsFunc(d.Following, func(f Following) bool { return f.Run == d.Update.ID })
}

// yieldPass ends the running update if it is a pass. No operator began it, and another one is due.
func (d *Deployment) yieldPass(why string) {
	if d.runsPass() {
		d.endPass("cancelled: "+why, false, true)
		d.endUpdate("cancelled: " + why)
	}
}

// Stray reports whether the running update is a pass for keys of another version than the one that
// the other deployment serves now. version is the API version that the other deployment serves now.
func Stray(d Deployment, deployment, version string) (f Following, stray bool) {
	if d.Update == nil {
		return Following{}, false
	}
	f, ok := FollowingOf(d, d.Update.Name)
	return f, ok && f.Run == d.Update.ID && f.Deployment == deployment && f.Version != version
}
