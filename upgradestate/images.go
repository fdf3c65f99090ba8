package upgradestate

import "slices"

// Images identifies the transformation that makes the records of a namespace while it is the target
// of the direction Epoch. Generation counts its changes within the direction.
//
// Why a change is a fence. A controller that has the former transformation and pauses during the
// change holds images that guards do not recognize as old. It may have read the source later than a
// process that compares by the new transformation. It may also make records that the new one never
// writes. So each change announces a rename of all kinds of the target, in the same transition as
// the new hash (PendingSeal, as after an abort). Names, hash and generation belong to one record. A
// writer with the former transformation does not know the new names, and the database refuses its
// writes under the old ones. Nothing is written until the renames are confirmed (ApplyAllowed).
// Later writes follow a plan of their own (the generation is part of its key), which starts at a
// position after the rename. They count for nothing until everything is compared from both sides.
//
// Fences counts the fences of loaders within the generation. Before the first one, records are
// inserted without guards. A paused loader can then bring back deleted records, and a killed one
// can leave part of a group. The fence is announced like a change, in one transition with the
// count. After it, all writes have guards, and everything is compared. Another fence is needed
// after the source's history was lost. Other controllers may hold reads from before the new
// beginning, and guards do not recognize those as old where the comparison finds nothing to write.
type Images struct {
	Epoch         uint64 `json:"epoch,omitempty"`
	TransformHash string `json:"transformHash,omitempty"`
	Generation    uint64 `json:"generation,omitempty"`
	Fences        uint64 `json:"fences,omitempty"`
}

// ImagesOf returns the present images of a version as the target of the present direction. ok is
// false if no images are announced. No controller writes there then.
func ImagesOf(d Deployment, version string) (m Images, ok bool) {
	ns, _ := d.Namespace(version)
	return ns.Images, ns.Images.Epoch == d.Epoch
}

// bindImages binds the followed namespace to the transformation announced for it. before is the
// former list of available upgrades. A record of an older binary has no other trace of its
// transformation. Every transition that may change the followed version ends with it.
func (d *Deployment) bindImages(before []Available) {
	a, ok := Followed(*d)
	ns := d.namespaceOf(a.TargetVersion)
	if !ok || ns == nil || a.TransformHash == "" {
		return
	}
	m := &ns.Images
	if m.Epoch != d.Epoch {
		*m = Images{Epoch: d.Epoch, TransformHash: a.TransformHash}
		// Engines may have written by the former hash, so a change has to fence them.
		if j := slices.IndexFunc(before, func(b Available) bool { return b.TargetVersion == a.TargetVersion }); j >= 0 {
			m.TransformHash = before[j].TransformHash
		}
	}
	if m.TransformHash == a.TransformHash {
		return
	}
	// Another transformation: engines with the former one must be stopped at the database.
	m.TransformHash = a.TransformHash
	m.Generation++
	m.Fences = 0
	d.keepOut(a.TargetVersion)
}

// keepOut announces a rename of the kinds of a target. A kind with a pending rename needs no second
// one, since no controller writes under an unconfirmed name.
func (d *Deployment) keepOut(version string) {
	for _, k := range d.kinds(version) {
		if k.Pending == nil {
			k.announce(PendingSeal)
		}
	}
}

// fenceLoaders announces the fence of all writers that have read the source so far.
func (d *Deployment) fenceLoaders(e FenceLoaders) error {
	a, ok := Followed(*d)
	if !ok || a.TargetVersion != e.Version || d.Upgrade != nil && (d.Upgrade.Step != StepNone || d.Upgrade.Snapshot) {
		return outdated("fence of loaders of %s", e.Version)
	}
	ns := d.namespaceOf(e.Version)
	if ns == nil || ns.Images != e.Seen || e.Seen.Epoch != d.Epoch || !Fenceable(*d, e.Version) {
		return outdated("fence of loaders of %s", e.Version)
	}
	// The count and the new names are one transition, so no record permits loads under the new
	// names.
	ns.Images.Fences++
	d.keepOut(e.Version)
	return nil
}

// Fenceable reports whether loaders can be fenced out of a version: it has kinds, and a seal gives
// each of them another name. A kind that the latest switch left under its application's name,
// behind a mark, keeps its name. Controllers load nothing into such a version.
func Fenceable(d Deployment, version string) bool {
	ns, _ := d.Namespace(version)
	return len(ns.Kinds) > 0 && !slices.ContainsFunc(ns.Kinds, func(k Kind) bool { return !k.moves(PendingSeal) })
}

// Loads reports whether controllers may insert records without guards into a version, under the
// names that this record has.
func Loads(d Deployment, version string) bool {
	m, ok := ImagesOf(d, version)
	return ok && m.Fences == 0 && Fenceable(d, version)
}

// LoadersFenced reports whether loaders were fenced out of a target more than a given number of
// times, and no rename of its kinds is pending. Copiers that read the source under an earlier fence
// can then no longer write there. It is also true for a version without images and for one that is
// not Fenceable, since controllers load nothing there.
func LoadersFenced(d Deployment, version string, more uint64) bool {
	ns, _ := d.Namespace(version)
	m, ok := ImagesOf(d, version)
	return !ok || !Fenceable(d, version) || m.Fences > more && !ns.pending()
}
