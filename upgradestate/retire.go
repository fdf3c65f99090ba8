package upgradestate

import (
	"fmt"
	"maps"
	"slices"
)

// Retire is a namespace that is being set aside or dropped. Controllers no longer sync to it.
type Retire struct {
	Version string `json:"version"`
	// Until is the time of the drop of collections that are set aside; empty: they are dropped at
	// once.
	Until string `json:"until,omitempty"`
	// Lost means that the database is lost, so that nothing can be set aside or dropped.
	Lost bool `json:"lost,omitempty"`
}

// Kept is a retired namespace whose collections are renamed and wait for the drop, so that an
// operator can still read them. No switch can lead to it.
type Kept struct {
	Namespace Namespace `json:"namespace"`
	// Until (RFC 3339; empty: now) is compared with the clocks of controllers. It decides only how
	// long the data are available.
	Until string `json:"until,omitempty"`
}

// RetiredName returns the name that the collection of a retired version's kind has until it is
// dropped.
func RetiredName(version string, k Kind) string {
	name := k.Physical
	if len(name) > longestKeptName {
		name = k.ID
	}
	return "dbc_retired." + version + "." + name
}

// longestKeptName leaves room for a prefix within the length limit of databases.
const longestKeptName = 100

func (d *Deployment) isRetired(version string) bool { return slices.Contains(d.Retired, version) }

// Retired reports whether a version's namespace is retired or being retired. No switch leads back
// to it, even while its collections are kept.
func Retired(d Deployment, version string) bool {
	return d.isRetired(version) || d.Retire != nil && d.Retire.Version == version
}

// KeptNamespace returns the kept collections of a retired version. It is false if there are none,
// or the version was never retired. While the collections are being set aside, they are still in
// Namespaces.
func KeptNamespace(d Deployment, version string) (Kept, bool) {
	// While collections are being set aside, the record still has the namespace.
	if until := d.keptUntil(version); until != nil {
		if i := d.kept(version); i >= 0 {
			return d.Kept[i], true
		}
		ns, _ := d.Namespace(version)
		return Kept{Namespace: ns, Until: *until}, true
	}
	return Kept{}, false
}

func (d *Deployment) complete(e Complete) error {
	// No process may still need the namespace.
	switch _, known := d.Namespace(e.Version); {
	case Retired(*d, e.Version):
		if e.Lost {
			d.giveUpData(e.Version)
		}
		return nil
	case e.Version == d.CurrentVersion:
		return refused("complete: %s is the current version: only a version before a switch can be retired", e.Version)
	case !known:
		return refused("complete: unknown version %q", e.Version)
	case d.Upgrade != nil:
		return refused("complete: upgrade %s to %s is running: let it finish or abort it first", d.Upgrade.ID, d.Upgrade.TargetVersion)
	case d.Retire != nil:
		return refused("complete: %s is being retired: wait until it ends", d.Retire.Version)
	}
	d.Retire = &Retire{Version: e.Version, Until: e.Until}
	if e.Lost {
		d.giveUpData(e.Version)
	}
	// Otherwise a controller could begin to copy into the collections that are being dropped.
	d.Available = slices.DeleteFunc(d.Available, func(a Available) bool { return a.TargetVersion == e.Version })
	return nil
}

// giveUpData ends the wait for the database of a version that is being retired or is retired.
func (d *Deployment) giveUpData(version string) {
	if r := d.Retire; r != nil && r.Version == version {
		r.Until, r.Lost = "", true
	}
	if i := d.kept(version); i >= 0 {
		d.Kept = slices.Delete(d.Kept, i, i+1)
		d.addEntry(Entry{What: "drop", From: version, Outcome: givenUp})
	}
}

func (d *Deployment) keep(e Keep) error {
	switch until := d.keptUntil(e.Version); {
	case until == nil && d.isRetired(e.Version):
		return refused("keep: the collections of %s are gone", e.Version)
	case until == nil:
		return refused("keep: %s is not being retired", e.Version)
	// Some collections may be gone already.
	case *until == "" && e.Until != "":
		return refused("keep: the collections of %s are being dropped already", e.Version)
	default:
		*until = e.Until
	}
	return nil
}

// keptUntil returns the end of the time that a retired version's collections are kept, to be
// modified in place, or nil.
func (d *Deployment) keptUntil(version string) *string {
	if i := d.kept(version); i >= 0 {
		return &d.Kept[i].Until
	}
	if d.Retire != nil && d.Retire.Version == version {
		return &d.Retire.Until
	}
	return nil
}

// kept returns the index in Kept, or -1.
func (d *Deployment) kept(version string) int {
	return slices.IndexFunc(d.Kept, func(k Kept) bool { return k.Namespace.Version == version })
}

func (d *Deployment) setAside(e SetAside) error {
	switch {
	case d.isRetired(e.Version):
		return nil
	case d.Retire == nil || d.Retire.Version != e.Version || d.Retire.Until == "":
		return outdated("set aside: %s is not being set aside", e.Version)
	}
	ns, _ := d.Namespace(e.Version)
	// The names of the collections are needed for the drop.
	d.Kept = append(d.Kept, Kept{Namespace: ns, Until: d.Retire.Until})
	d.retired(e.Version)
	return nil
}

func (d *Deployment) dropped(e Dropped) error {
	switch i := d.kept(e.Version); {
	case i >= 0:
		d.Kept = slices.Delete(d.Kept, i, i+1)
	// A repetition.
	case d.isRetired(e.Version):
	case d.Retire == nil || d.Retire.Version != e.Version:
		return outdated("dropped: %s is not being retired", e.Version)
	default:
		d.retired(e.Version)
	}
	return nil
}

// retired ends a retirement: the record no longer has the namespace.
func (d *Deployment) retired(version string) {
	d.Namespaces = slices.DeleteFunc(d.Namespaces, func(ns Namespace) bool { return ns.Version == version })
	// Breaches of a namespace that is gone cannot be handled any more.
	d.Breaches = slices.DeleteFunc(d.Breaches, func(b Breach) bool { return b.Version == version })
	d.Retire = nil
	d.Retired = append(d.Retired, version)
}

// announceExpiry keeps recorded values: the indexes may have been stopped since, so their present
// seconds are no longer the real ones.
func (d *Deployment) announceExpiry(e AnnounceExpiry) error {
	for _, k := range d.kinds(e.Version) {
		if k.Kind != e.Kind {
			continue
		}
		next := maps.Clone(k.Expiry)
		for name, seconds := range e.Expiry {
			old, noted := k.Expiry[name]
			// The seconds in the index may be those of a stopped index.
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

// forgetExpiry needs the very record that the caller read, and no switch near. Otherwise an index
// stopped for the switch would lose its seconds.
func (d *Deployment) forgetExpiry(e ForgetExpiry) error {
	switch {
	case e.Revision != d.Revision || e.Version != d.CurrentVersion:
		return outdated("notes of TTL indexes of %s", e.Version)
	case ReadyToSwitch(*d) || d.Upgrade != nil && d.Upgrade.State == Switching:
		return refused("forget expiry: a switch may begin, and its TTL indexes are stopped")
	}
	for _, k := range d.kinds(e.Version) {
		for _, name := range e.Kinds[k.Kind] {
			delete(k.Expiry, name)
		}
		// A record without entries has nil, so that equal states are equal records.
		if len(k.Expiry) == 0 {
			k.Expiry = nil
		}
	}
	return nil
}

func (d *Deployment) announceIndexes(e AnnounceIndexes) error {
	k := kindOf(d.kinds(e.Version), e.Kind)
	if k == nil {
		return refused("announce indexes: there is no kind %s in %s", e.Kind, e.Version)
	}
	next := slices.DeleteFunc(slices.Clone(k.Carried), func(name string) bool { return slices.Contains(e.Dropped, name) })
	for _, name := range e.Built {
		if !slices.Contains(next, name) {
			next = append(next, name)
		}
	}
	// A fixed order makes a repetition a no-op.
	slices.Sort(next)
	k.Carried = next
	return nil
}

func validateRetire(d Deployment) error {
	if d.isRetired(d.CurrentVersion) {
		return fmt.Errorf("the current version %s is retired", d.CurrentVersion)
	}
	for _, ns := range d.Namespaces {
		if d.isRetired(ns.Version) {
			return fmt.Errorf("%s is retired, but its namespace still exists", ns.Version)
		}
	}
	for i, k := range d.Kept {
		if v := k.Namespace.Version; !d.isRetired(v) || d.kept(v) != i {
			return fmt.Errorf("the collections of %s cannot be kept", v)
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
