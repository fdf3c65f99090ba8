package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// announceNamespace adds missing kinds and leaves existing ones alone.
func (d *Deployment) announceNamespace(ns Namespace) error {
	if ns.Version == "" {
		return refused("announce namespace: the version is empty")
	}
	if d.isRetired(ns.Version) {
		return refused("announce namespace: %s was retired: take it out of dbs", ns.Version)
	}
	have := d.namespaceOf(ns.Version)
	if have == nil {
		d.Namespaces = append(d.Namespaces, Namespace{Version: ns.Version, Location: ns.Location, Kinds: []Kind{}})
		have = &d.Namespaces[len(d.Namespaces)-1]
	}
	// A wrong database must not join: its records would be synced and fenced as this version's.
	if have.Location != ns.Location {
		return refused("announce namespace: %s is at %s in the deployment, not at %s: correct the configuration",
			ns.Version, have.Location, ns.Location)
	}
	if have.Identity.Differs(ns.Identity) {
		return refused("announce namespace: %s is not in the database that the deployment uses: correct its endpoint, or its database or prefix, in dbs of the configuration", ns.Version)
	}
	// Two versions in one database would each take the other's collections for their own.
	for _, other := range d.Namespaces {
		if db := ns.Identity.Database; other.Version != ns.Version && db != "" && other.Identity.Database == db && !other.Identity.Differs(ns.Identity) {
			return refused("announce namespace: %s and %s are one database: give each version its own", other.Version, ns.Version)
		}
	}
	have.Identity.fill(ns.Identity)
	if ns.Hosts != "" {
		have.Hosts = ns.Hosts
	}
	for _, k := range ns.Kinds {
		// A kind with another identity is another collection, and its history is unknown.
		if old, ok := have.Kind(k.Kind); ok {
			if old.ID != k.ID || old.Fixed != k.Fixed {
				return refused("announce namespace: kind %s of %s is collection %q in the deployment, not %q: somebody replaced a collection; put it back or remove the deployment",
					k.Kind, ns.Version, old.ID, k.ID)
			}
			continue
		}
		// Reports and fences of the upgrade do not cover a kind that joins later.
		if u := d.Upgrade; u != nil && (ns.Version == d.CurrentVersion || ns.Version == u.TargetVersion) {
			return refused("announce namespace: kind %s cannot join %s while upgrade %s runs: abort the upgrade or wait until it ends",
				k.Kind, ns.Version, u.ID)
		}
		k, err := freshKind(k, ns.Version == d.CurrentVersion)
		if err != nil {
			return refused("announce namespace: %s of %s: %v", k.Kind, ns.Version, err)
		}
		have.Kinds = append(have.Kinds, k)
		// The update started without this kind and has to cover it, too.
		if u := d.Update; u != nil && u.Version == ns.Version {
			u.cover(k)
		}
	}
	return nil
}

// freshKind completes the fields of a kind that is announced for the first time.
func freshKind(k Kind, current bool) (Kind, error) {
	if !k.Fixed && k.Fence == "" {
		k.Fence = classUUID
	}
	k.Hidden = k.Fixed && k.Physical != k.Kind
	if k.Fenced != "" || k.Sealed || k.Pending != nil {
		return k, fmt.Errorf("a new kind cannot be fenced, sealed or have an operation pending")
	}
	if current && k.Hidden {
		return k, fmt.Errorf("its collection has the name %s, and clients of the current version use %s", k.Physical, k.Kind)
	}
	// The name in use must not be announced again.
	if seq, ok := seqOf(k.Kind, k.Physical); ok {
		k.NextSeq = max(k.NextSeq, seq+1)
	}
	k.NextSeq = max(k.NextSeq, 1)
	return k, validateKind(k)
}

func (d *Deployment) announceAvailable(a Available) error {
	if a.TargetVersion == "" || a.TargetVersion == d.CurrentVersion {
		return refused("announce available: %q is no upgrade from %s", a.TargetVersion, d.CurrentVersion)
	}
	if Retired(*d, a.TargetVersion) {
		return refused("announce available: %s was retired: take it out of dbs", a.TargetVersion)
	}
	if u := d.Upgrade; u != nil && u.TargetVersion == a.TargetVersion && u.TransformHash != a.TransformHash {
		return refused("announce available: upgrade %s to %s runs with transform %s, not with %s: run the binary and lenses that the upgrade began with, or abort it first",
			u.ID, u.TargetVersion, u.TransformHash, a.TransformHash)
	}
	// bindImages needs the list from before this change.
	before := slices.Clone(d.Available)
	if a.Precopied {
		for i := range d.Available {
			d.Available[i].Precopied = false
		}
	}
	i := slices.IndexFunc(d.Available, func(b Available) bool { return b.TargetVersion == a.TargetVersion })
	if i < 0 {
		d.Available = append(d.Available, a)
	} else {
		d.Available[i] = a
	}
	d.bindImages(before)
	return nil
}

func (d *Deployment) withdrawAvailable(e WithdrawAvailable) error {
	// The running upgrade goes on. Other controllers may still offer it.
	if u := d.Upgrade; u != nil && u.TargetVersion == e.TargetVersion {
		return nil
	}
	if _, ok := d.available(e.TargetVersion); ok {
		before := slices.Clone(d.Available)
		d.Available = slices.DeleteFunc(d.Available, func(a Available) bool { return a.TargetVersion == e.TargetVersion })
		d.bindImages(before)
	}
	return nil
}

// begin creates the upgrade in INITIAL_SYNCING.
func (d *Deployment) begin(e Begin) error {
	if e.Shards != 0 && e.Shards != d.RingSize {
		return refused("begin-upgrade: wrong shard count %d: this deployment has a ring of %d; give --total-shards-count %d or leave it out",
			e.Shards, d.RingSize, d.RingSize)
	}
	if e.ID == "" {
		return refused("begin-upgrade: the upgrade id is empty: make a random one")
	}
	if s := d.LastSwitch; d.Upgrade == nil && s != nil && s.ID == e.ID && s.To == e.TargetVersion && d.CurrentVersion == s.To {
		return nil // a late repetition: this very upgrade is done
	}
	if e.TargetVersion == d.CurrentVersion {
		return refused("begin-upgrade: already at version %s", d.CurrentVersion)
	}
	available := slices.IndexFunc(d.Available, func(a Available) bool { return a.TargetVersion == e.TargetVersion })
	if available >= 0 && e.TransformHash == "" {
		e.TransformHash = d.Available[available].TransformHash
	}
	// A repeated request must not start a second upgrade, and a different one must not be lost
	// silently.
	if u := d.Upgrade; u != nil {
		switch {
		case u.Step == StepAbort:
			return refused("begin-upgrade: upgrade %s to %s is being aborted (%s): wait until it ends, then begin again",
				u.ID, u.TargetVersion, u.AbortReason)
		case u.TargetVersion != e.TargetVersion:
			return refused("begin-upgrade: upgrade %s to %s is already running: let it finish or abort it before one to %s",
				u.ID, u.TargetVersion, e.TargetVersion)
		case e.TransformHash != "" && e.TransformHash != u.TransformHash:
			return refused("begin-upgrade: upgrade %s to %s is already running with transform %s, not %s: let it finish or abort it",
				u.ID, u.TargetVersion, u.TransformHash, e.TransformHash)
		case e.Snapshot != u.Snapshot:
			return refused("begin-upgrade: upgrade %s to %s is already running %s: let it finish or abort it",
				u.ID, u.TargetVersion, snapshotName(u.Snapshot))
		case e.Policy != (Policy{}) && e.Policy != u.Policy:
			return refused("begin-upgrade: upgrade %s to %s is already running with %s, not %s: change that with 'set-policy'",
				u.ID, u.TargetVersion, u.Policy, e.Policy)
		}
		return nil
	}
	if err := d.mayBegin(e); err != nil {
		return err
	}
	target, ok := d.Namespace(e.TargetVersion)
	if !ok {
		return refused("begin-upgrade: unknown version %q: known are %s; a version becomes known when a controller configured with it runs",
			e.TargetVersion, strings.Join(d.versions(), ", "))
	}
	source, _ := d.Namespace(d.CurrentVersion)
	if len(source.Kinds) == 0 || len(target.Kinds) == 0 {
		return refused("begin-upgrade: %s and %s do not both have kinds yet: start a controller that has both in its configuration",
			d.CurrentVersion, e.TargetVersion)
	}
	switch {
	case e.TransformHash == "":
		return refused("begin-upgrade: no controller offers an upgrade to %s yet: start one that knows %s and %s",
			e.TargetVersion, d.CurrentVersion, e.TargetVersion)
	case available >= 0 && d.Available[available].TransformHash != e.TransformHash:
		return refused("begin-upgrade: the controllers transform to %s with %s, not %s: request their transform, or update the controllers",
			e.TargetVersion, d.Available[available].TransformHash, e.TransformHash)
	// A late event of the old upgrade would otherwise count for the new one.
	case e.ID == d.LastUpgradeID:
		return refused("begin-upgrade: upgrade id %s was used before: make a new one", e.ID)
	}
	// All checks are done. From here on the record changes.
	d.yieldUpdate(e)
	d.LastUpgradeID = e.ID
	d.Upgrade = &Upgrade{
		ID: e.ID, TargetVersion: e.TargetVersion, TransformHash: e.TransformHash,
		State: InitialSyncing, Step: StepNone, Attempt: 1, ReadyShards: []int{},
		Policy: e.Policy, Snapshot: e.Snapshot,
	}
	d.bindImages(d.Available)
	return nil
}

func (d *Deployment) versions() []string {
	var vs []string
	for _, ns := range d.Namespaces {
		vs = append(vs, ns.Version)
	}
	if !slices.Contains(vs, d.CurrentVersion) {
		vs = append(vs, d.CurrentVersion)
	}
	slices.Sort(vs)
	return vs
}
