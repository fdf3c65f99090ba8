package upgradestate

import "slices"

// Images says by which transformation the records of a namespace are made while it is the
// target of the direction Epoch: the one that is announced. Generation counts its changes
// within the direction.
//
// Why a change is a fence. A controller with the transformation before, that sleeps over the
// change, has images in its hands of which guards know nothing: it may have read the source
// later than a process that compares by the new one, or make records that the new one never writes.
// So each change announces a rename of all kinds of the target (PendingSeal, as after an
// abort): in one transition with the hash. Names, hash and generation are of one record, so
// that nobody who writes by the former transformation knows the next names, and what it
// sends under those it knows is refused. Nothing is written until the renames are confirmed
// (ApplyAllowed). What is written after that goes by a plan of its own (the generation is
// part of its key), begins at a position later than the rename, and counts for nothing
// before everything is compared from both sides.
//
// Fences counts, within the generation, the fences of loaders. Until the first of them records
// are loaded without guards, so that who sleeps with a page in its hand can bring back what was
// deleted, and who is killed in a page leaves a group by halves. The fence is announced as that
// of a change is, in one transition with the count; after it everything is written under
// guards, and compared as a whole. It is needed anew when the history of the source was lost:
// what others had read before the new beginning, guards do not know to be old where the
// comparison finds nothing to write.
type Images struct {
	Epoch         uint64 `json:"epoch,omitempty"`
	TransformHash string `json:"transformHash,omitempty"`
	Generation    uint64 `json:"generation,omitempty"`
	Fences        uint64 `json:"fences,omitempty"`
}

// ImagesOf is how the records of a version are made now, as the target of the present
// direction. ok is false when nobody has announced that: then nobody writes there.
func ImagesOf(d Deployment, version string) (m Images, ok bool) {
	ns, _ := d.Namespace(version)
	return ns.Images, ns.Images.Epoch == d.Epoch
}

// bindImages binds the namespace that is followed to the transformation that is announced
// for it. before is the one that was announced last; a record of an older binary knows no
// other. Every transition that may change what is followed ends with it.
func (d *Deployment) bindImages(before []Available) {
	a, ok := Followed(*d)
	i := slices.IndexFunc(d.Namespaces, func(ns Namespace) bool { return ns.Version == a.TargetVersion })
	if !ok || i < 0 || a.TransformHash == "" {
		return
	}
	m := &d.Namespaces[i].Images
	if m.Epoch != d.Epoch {
		*m = Images{Epoch: d.Epoch, TransformHash: a.TransformHash}
		if j := slices.IndexFunc(before, func(b Available) bool { return b.TargetVersion == a.TargetVersion }); j >= 0 {
			m.TransformHash = before[j].TransformHash
		}
	}
	if m.TransformHash == a.TransformHash {
		return
	}
	m.TransformHash = a.TransformHash
	m.Generation++
	m.Fences = 0
	d.keepOut(a.TargetVersion)
}

// keepOut announces that the kinds of a target are renamed. A rename that is announced and not
// confirmed yet, nobody writes behind.
func (d *Deployment) keepOut(version string) {
	for _, k := range d.kinds(version) {
		if k.Pending == nil {
			k.announce(PendingSeal)
		}
	}
}

// fenceLoaders announces the fence of who writes to a target by what it has read so far.
func (d *Deployment) fenceLoaders(e FenceLoaders) error {
	a, ok := Followed(*d)
	if !ok || a.TargetVersion != e.Version || d.Upgrade != nil && (d.Upgrade.Step != StepNone || d.Upgrade.Snapshot) {
		return outdated("fence of loaders of %s", e.Version)
	}
	i := slices.IndexFunc(d.Namespaces, func(ns Namespace) bool { return ns.Version == e.Version })
	if i < 0 || d.Namespaces[i].Images != e.Seen || e.Seen.Epoch != d.Epoch || !Fenceable(*d, e.Version) {
		return outdated("fence of loaders of %s", e.Version)
	}
	d.Namespaces[i].Images.Fences++
	d.keepOut(e.Version)
	return nil
}

// Fenceable reports whether loaders can be kept out of a version: every kind gets another name.
// One that the latest switch left under its application's name, behind a mark, does not; nothing
// is loaded there.
func Fenceable(d Deployment, version string) bool {
	ns, _ := d.Namespace(version)
	return len(ns.Kinds) > 0 && !slices.ContainsFunc(ns.Kinds, func(k Kind) bool { return !k.moves(PendingSeal) })
}

// Loads reports whether records may be loaded into a version without guards, under the names of
// this very record.
func Loads(d Deployment, version string) bool {
	m, ok := ImagesOf(d, version)
	return ok && m.Fences == 0 && Fenceable(d, version)
}

// LoadersFenced reports whether everybody is kept out of a target who has read the source before
// its fences were more than so many. Where there can be none, nothing is loaded either.
func LoadersFenced(d Deployment, version string, more uint64) bool {
	ns, _ := d.Namespace(version)
	m, ok := ImagesOf(d, version)
	return !ok || !Fenceable(d, version) || m.Fences > more && !ns.pending()
}
