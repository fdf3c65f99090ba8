package controller

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// reachable are the versions that an upgrade may begin to from d's current one, in the
// order of the configuration: the later ones, other places of the current one, and the one
// that the latest switch came from. Not those that are disabled or retired.
func (a *App) reachable(d upgradestate.Deployment) []string {
	versions := a.cfg.Versions()
	at := slices.Index(versions, d.CurrentVersion)
	if at < 0 {
		return nil
	}
	var out []string
	for i, db := range a.cfg.Databases {
		later := i > at
		moves := db.APIVersion == upgradestate.APIVersion(d.CurrentVersion)
		switch {
		case i == at || !later && !moves && db.Version != upgradestate.PreviousVersion(d):
		case db.Disabled || upgradestate.Retired(d, db.Version):
		default:
			out = append(out, db.Version)
		}
	}
	return out
}

// precopied is the version that is copied before an upgrade begins: the next one. Another place of
// the current version is moved to by command alone. The version that the latest switch
// came from is kept in sync, or left alone, for that.
func (a *App) precopied(d upgradestate.Deployment) string {
	versions := a.cfg.Versions()
	reachable := a.reachable(d)
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

// wants is the version that this process would have synced to, before the record says so.
func (a *App) wants(d upgradestate.Deployment) (version string, ok bool) {
	if u := d.Upgrade; u != nil {
		_, configured := a.cfg.Database(u.TargetVersion)
		return u.TargetVersion, configured
	}
	if back := upgradestate.PreviousVersion(d); slices.Contains(a.reachable(d), back) && !d.LastSwitch.Snapshot {
		return back, true
	}
	next := a.precopied(d)
	return next, next != ""
}

// target is the version to sync to while d's current version serves: what the record says,
// as long as it is configured here and, unless an upgrade runs, not disabled. ok is false
// when there is none.
func (a *App) target(d upgradestate.Deployment) (version string, ok bool) {
	to, ok := upgradestate.Followed(d)
	if !ok {
		return "", false
	}
	db, configured := a.cfg.Database(to.TargetVersion)
	if !configured || db.Disabled && d.Upgrade == nil {
		return "", false
	}
	return to.TargetVersion, true
}

// idle reports whether a version's database is needed by nothing: it is disabled, not
// active, and no upgrade goes there.
func (a *App) idle(d upgradestate.Deployment, version string) bool {
	db, configured := a.cfg.Database(version)
	return configured && db.Disabled && version != d.CurrentVersion && (d.Upgrade == nil || version != d.Upgrade.TargetVersion)
}

// withdraw takes back upgrades to versions that the configuration has disabled since they
// were announced. The controller that leads does it, so that controllers which are
// configured differently, as during a change of the configuration, do not take turns.
func (a *App) withdraw(ctx context.Context) error {
	for d := range a.deployment.Watch(ctx) {
		for _, available := range d.Available {
			if db, configured := a.cfg.Database(available.TargetVersion); !configured || !db.Disabled {
				continue
			}
			_, err := a.deployment.Apply(ctx, upgradestate.WithdrawAvailable{TargetVersion: available.TargetVersion})
			if err != nil && ctx.Err() == nil {
				a.log.Warn("an upgrade to a disabled version is still announced", zap.String("version", available.TargetVersion), zap.Error(err))
			}
		}
	}
	return ctx.Err()
}
