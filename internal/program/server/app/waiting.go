package app

import (
	"maps"
	"sync"
	"time"

	"dbcontroller.dev/upgradestate"
)

// waiting knows since when an upgrade waits for servers only, as far as this server can see.
type waiting struct {
	mu      sync.Mutex
	upgrade string // the upgrade that waits for servers
	target  string
	readyAt time.Time // when everything else was ready for it; zero: it is not
}

// note remembers the state of the upgrade in a record.
func (w *waiting) note(d upgradestate.Deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Upgrade == nil {
		w.upgrade, w.target, w.readyAt = "", "", time.Time{}
		return
	}
	if w.upgrade != d.Upgrade.ID {
		w.upgrade, w.target, w.readyAt = d.Upgrade.ID, d.Upgrade.TargetVersion, time.Time{}
	}
	if w.readyAt.IsZero() && upgradestate.AllReady(d) {
		w.readyAt = time.Now()
	}
}

// waited reports whether the upgrade to a version has waited for this server for the given time.
func (w *waiting) waited(version string, limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return version == w.target && !w.readyAt.IsZero() && time.Since(w.readyAt) >= limit
}

// both joins what two parts of the server prepare, by version.
func both(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for version, what := range b {
		if have := out[version]; have != "" {
			what = have + " and its " + what
		}
		out[version] = what
	}
	return out
}
