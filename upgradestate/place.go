package upgradestate

import "strings"

// A namespace is named by the API version that its records are of and, where a second
// place holds the same, by "@" and the tag of that place: v1 and v1@b. CurrentVersion,
// TargetVersion and Namespace.Version are names of namespaces; what servers serve is the
// API version.

// APIVersion is the API version that the records of a namespace are of.
func APIVersion(namespace string) string {
	version, _, _ := strings.Cut(namespace, "@")
	return version
}

// Followed is the available upgrade whose namespace controllers keep in sync with the
// current one now: that of the upgrade that runs, else the reverse sync of the latest switch,
// else the one that is copied ahead. No others are written to.
func Followed(d Deployment) (Available, bool) {
	if u := d.Upgrade; u != nil {
		return Available{TargetVersion: u.TargetVersion, TransformHash: u.TransformHash}, true
	}
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

// PreviousVersion is the version that the latest switch came from, if it led to the current
// one; otherwise empty.
func PreviousVersion(d Deployment) string {
	if last := d.LastSwitch; last != nil && last.To == d.CurrentVersion {
		return last.From
	}
	return ""
}

// ReverseSynced reports whether, while no upgrade runs, the namespace that the latest switch came
// from is kept in sync with the current one. After a switch to a snapshot it is not.
func ReverseSynced(d Deployment) bool {
	last := d.LastSwitch
	if last == nil || last.To != d.CurrentVersion || last.Snapshot {
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
