package upgradestate

import "strings"

// A namespace is named by the API version of its records. A second place of the same version adds
// "@" and a tag: v1 and v1@b. CurrentVersion, TargetVersion and Namespace.Version are names of
// namespaces. Servers serve API versions.

// APIVersion returns the API version of the records in a namespace.
func APIVersion(namespace string) string {
	version, _, _ := strings.Cut(namespace, "@")
	return version
}

// Followed returns the upgrade whose namespace controllers keep in sync with the current one: the
// running upgrade, else the reverse sync of the latest switch, else the precopied one. Controllers
// write to no other namespace.
func Followed(d Deployment) (Available, bool) {
	if u := d.Upgrade; u != nil {
		return Available{TargetVersion: u.TargetVersion, TransformHash: u.TransformHash}, true
	}
	// The way back has priority over a copy to a further version.
	if ReverseSynced(d) {
		return d.available(d.LastSwitch.From)
	}
	for _, a := range d.Available {
		if a.Precopied && a.TargetVersion != d.CurrentVersion {
			return a, true
		}
	}
	return Available{}, false
}

// PreviousVersion returns the version that the latest switch left, if that switch led to the
// current version, and "" otherwise.
func PreviousVersion(d Deployment) string {
	if last := d.LastSwitch; last != nil && last.To == d.CurrentVersion {
		return last.From
	}
	return ""
}

// ReverseSynced reports whether controllers keep the namespace that the latest switch left in sync
// with the current one when no upgrade runs. It is false after a switch to a snapshot, and after an
// epoch without a switch.
func ReverseSynced(d Deployment) bool {
	last := d.LastSwitch
	if last == nil || last.To != d.CurrentVersion || !last.Synced() {
		return false
	}
	_, ok := d.available(last.From)
	return ok
}

func (d Deployment) available(version string) (Available, bool) {
	for _, a := range d.Available {
		if a.TargetVersion == version && version != d.CurrentVersion {
			return a, true
		}
	}
	return Available{}, false
}

// OldestDirection returns the earliest direction epoch whose stored state is still needed. The
// previous epoch's late deletes are still watched. The epochs that the latest switch, and the one
// before it the other way, ended have the waivers that still count. Epochs without a switch may have
// begun since.
func OldestDirection(d Deployment) uint64 {
	oldest := d.Epoch - min(d.Epoch, 2)
	last := d.LastSwitch
	if last == nil {
		return oldest
	}
	oldest = min(oldest, last.Epoch)
	if last.BeforeEpoch > 0 {
		oldest = min(oldest, last.BeforeEpoch)
	}
	return oldest
}
