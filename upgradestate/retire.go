package upgradestate

import (
	"fmt"
	"maps"
	"slices"
)

// Retire is a namespace that is being dropped. Nobody syncs to it any more.
type Retire struct {
	Version string `json:"version"`
}

func (d *Deployment) isRetired(version string) bool { return slices.Contains(d.Retired, version) }

// Retired reports whether the namespace of a version is gone, or going.
func Retired(d Deployment, version string) bool {
	return d.isRetired(version) || d.Retire != nil && d.Retire.Version == version
}

func (d *Deployment) complete(e Complete) error {
	switch _, known := d.Namespace(e.Version); {
	case Retired(*d, e.Version):
		return nil
	case e.Version == d.CurrentVersion:
		return refused("complete: %s is the version that is served: only one that was left can be retired", e.Version)
	case !known:
		return refused("complete: unknown version %q", e.Version)
	case d.Upgrade != nil:
		return refused("complete: upgrade %s to %s is running: let it finish or abort it first", d.Upgrade.ID, d.Upgrade.TargetVersion)
	case d.Retire != nil:
		return refused("complete: %s is being retired: wait for its end", d.Retire.Version)
	}
	d.Retire = &Retire{Version: e.Version}
	d.Available = slices.DeleteFunc(d.Available, func(a Available) bool { return a.TargetVersion == e.Version })
	return nil
}

func (d *Deployment) dropped(e Dropped) error {
	switch {
	case d.isRetired(e.Version):
		return nil
	case d.Retire == nil || d.Retire.Version != e.Version:
		return outdated("dropped: %s is not being retired", e.Version)
	}
	d.Namespaces = slices.DeleteFunc(d.Namespaces, func(ns Namespace) bool { return ns.Version == e.Version })
	d.Breaches = slices.DeleteFunc(d.Breaches, func(b Breach) bool { return b.Version == e.Version })
	d.Retire = nil
	d.Retired = append(d.Retired, e.Version)
	return nil
}

// announceExpiry keeps what is noted: the indexes may have been kept from deleting since.
func (d *Deployment) announceExpiry(e AnnounceExpiry) error {
	for _, k := range d.kinds(e.Version) {
		if k.Kind != e.Kind {
			continue
		}
		next := maps.Clone(k.Expiry)
		for name, seconds := range e.Expiry {
			old, noted := k.Expiry[name]
			if known, ok := e.Noted[name]; noted && !(ok && known == old) {
				continue
			}
			if next == nil {
				next = map[string]int64{}
			}
			next[name] = seconds
		}
		k.Expiry = next
		return nil
	}
	return refused("announce expiry: there is no kind %s in %s", e.Kind, e.Version)
}

func validateRetire(d Deployment) error {
	if d.isRetired(d.CurrentVersion) {
		return fmt.Errorf("the current version %s is retired", d.CurrentVersion)
	}
	for _, ns := range d.Namespaces {
		if d.isRetired(ns.Version) {
			return fmt.Errorf("%s is retired, but its namespace is there", ns.Version)
		}
	}
	r := d.Retire
	if r == nil {
		return nil
	}
	switch _, known := d.Namespace(r.Version); {
	case d.Upgrade != nil:
		return fmt.Errorf("%s is being retired while upgrade %s runs", r.Version, d.Upgrade.ID)
	case r.Version == d.CurrentVersion || !known:
		return fmt.Errorf("%s cannot be retired", r.Version)
	}
	return nil
}
