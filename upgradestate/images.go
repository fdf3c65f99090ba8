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
type Images struct {
	Epoch         uint64 `json:"epoch,omitempty"`
	TransformHash string `json:"transformHash,omitempty"`
	Generation    uint64 `json:"generation,omitempty"`
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
	for _, k := range d.kinds(a.TargetVersion) {
		// A rename that is announced and not confirmed yet, nobody writes behind.
		if k.Pending == nil {
			k.announce(PendingSeal)
		}
	}
}
