package controller

import (
	"slices"

	"dbcontroller.dev/upgradestate"
)

// reachable returns the versions to which an upgrade from d's current version may begin, in
// configuration order. These are later versions, other locations of the current one, and the
// version before the latest switch. Disabled and retired versions are excluded.
func (s Settings) reachable(d upgradestate.Deployment) []string {
	versions := s.Versions()
	at := slices.Index(versions, d.CurrentVersion)
	if at < 0 {
		return nil
	}
	var out []string
	for i, db := range s.Databases {
		later := i > at
		moves := db.APIVersion == upgradestate.APIVersion(d.CurrentVersion)
		switch {
		// There is no way to older versions, except a rollback.
		case i == at || !later && !moves && db.Version != upgradestate.PreviousVersion(d):
		case db.Disabled || upgradestate.Retired(d, db.Version):
		default:
			out = append(out, db.Version)
		}
	}
	return out
}

// precopied returns the version to copy before an upgrade begins: the next one. It returns "" if
// there is none. Another location of the current version is copied only on command. The version
// before the latest switch is never precopied: reverse sync handles it.
func (s Settings) precopied(d upgradestate.Deployment) string {
	versions := s.Versions()
	reachable := s.reachable(d)
	for _, v := range versions[slices.Index(versions, d.CurrentVersion)+1:] {
		if upgradestate.APIVersion(v) == upgradestate.APIVersion(d.CurrentVersion) {
			continue
		}
		if v == upgradestate.PreviousVersion(d) {
			return ""
		}
		if slices.Contains(reachable, v) {
			return v
		}
	}
	return ""
}

// wants returns the version that this process wants to sync to, before the record names one.
func (s Settings) wants(d upgradestate.Deployment) (version string, ok bool) {
	// A running upgrade decides, even if its target is disabled here.
	if u := d.Upgrade; u != nil {
		_, configured := s.Database(u.TargetVersion)
		return u.TargetVersion, configured
	}
	// Reverse sync comes before the next version: it keeps a rollback possible.
	if back := upgradestate.PreviousVersion(d); slices.Contains(s.reachable(d), back) && d.LastSwitch.Synced() {
		return back, true
	}
	next := s.precopied(d)
	return next, next != ""
}

// target returns the version to sync to while d's current version serves. The record names it. ok
// is false if there is none, if it is not configured here, or if it is disabled and no upgrade
// runs.
func (s Settings) target(d upgradestate.Deployment) (version string, ok bool) {
	to, ok := upgradestate.Followed(d)
	if !ok {
		return "", false
	}
	db, configured := s.Database(to.TargetVersion)
	if !configured || db.Disabled && d.Upgrade == nil {
		return "", false
	}
	return to.TargetVersion, true
}

// idle reports whether a version's database is not needed: it is disabled, not active, and not the
// target of an upgrade.
func (s Settings) idle(d upgradestate.Deployment, version string) bool {
	db, configured := s.Database(version)
	return configured && db.Disabled && version != d.CurrentVersion && (d.Upgrade == nil || version != d.Upgrade.TargetVersion)
}

// copies reports whether an engine may start before an upgrade begins. Reverse sync and the watch
// after a switch do not depend on copy.auto. A version left by a switch to a snapshot, or before an
// epoch without a switch, is not synced again.
func (s Settings) copies(d upgradestate.Deployment, to string) bool {
	last := d.LastSwitch
	if last != nil && !last.Synced() && last.From == to {
		return false
	}
	return s.Copy.Auto || last != nil && (last.From == to || last.From == d.CurrentVersion)
}
