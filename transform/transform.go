// Package transform turns groups of records of one API version into the groups of the next version,
// and back. It holds the transformers, the registry of a service's versions, and chains that run
// several steps as one. Package lens makes transformers from YAML, and package typed makes them
// from Go types.
//
// Records that transform together share a group, and the engine migrates whole groups. A Spec is
// one transformer between two adjacent versions. It declares the kinds of both sides and how their
// records fall into groups. A group follows either from a key alone, or from the content of a
// record. Groups by key are simpler, because a delete event carries only a key. A Direction is a
// compiled step, or chain of steps, from one version to another.
//
// # Vocabulary
//
//   - Kind: a collection of records.
//   - Engine: the code that copies and syncs records between two versions (package syncer).
//   - Guard: the direction epoch and the record version that a backend stores with a target record.
//     A write takes effect only over a lower guard. The epoch grows with each switch.
//   - Anchor: the record of a group whose guard stands for the whole group.
//   - Complement: the records that the target holds for a group. A transformer takes from them the
//     fields that the source version cannot express.
//   - Parked: a group that could not be migrated is set aside with its error. It blocks the switch
//     until it is fixed or waived.
//
// # Groups by content
//
// The present content of a record does not show the group that the record left, its siblings, or
// the target records that were made from it. Lineage does. Lineage is a hidden kind in the target.
// Each transaction that writes records of a group also writes their lineage. It has three sorts of
// entries:
//
//   - for each source record, its group;
//   - for each group, its members and its records in the target;
//   - for each target record, its group.
//
// The engine names its work by units for such specs. A unit is a single record of the source or of
// the target. Resolver finds the components of units, by lineage and by content. A component is a
// set of groups that must be written together, for example because a record moves from one to
// another. The target writes a component whole or not at all, and only if every lineage entry
// behind it is unchanged. A group by key is a component of its own, so Transfer migrates both sorts
// of groups in one way.
//
// # Guarantees
//
//   - Each result is reversible: the other direction turns it into the source's group again.
//     Reversal selects how the package checks this. If the check fails, the group fails with an
//     error.
//   - A panic of a transformer becomes an error of its group, with the stack.
//   - Direction.Hash changes when any declared part changes.
//
// In return, a transformer must be pure and deterministic. It must neither keep nor modify the
// bytes that it gets.
//
// # What this package does not own
//
// The package opens no database: callers pass in a record.Reader and a write function. It does not
// decide when to migrate a group; package syncer does.
//
// # Where to begin
//
// The author of a transformer in Go needs Spec, Side, GroupedKind and Func (docs/transformers.md).
// The author of a data update needs Task. Everything else serves the engine and its tools.
//
// To read the code, begin with Spec and Direction in transform.go. Then read Registry in
// registry.go, Transfer in transfer.go, and lineage.go for groups by content.
package transform

import (
	"dbcontroller.dev/record"
)

// Group holds the records of one group of one version: live records only, ordered by kind and then
// by key. An empty Records means that the group does not exist.
type Group struct {
	Name    string
	Records []record.Record
}

// Func computes the records that the other side must hold for a group. have is the complement: the
// other side's present records of the group, from which Func takes the fields that src cannot
// express. have is empty when the other side holds nothing, or when the Spec does not ask for it.
// Each result carries Kind, Key and Doc, and Doc has the _id of Key. Func returns nil for a group
// that must not exist.
type Func func(src, have Group) ([]record.Record, error)

// GroupedKind declares how the records of one kind fall into groups.
type GroupedKind struct {
	record.KindSpec
	// GroupOf returns the group of a key. If it is nil, the key itself is the group, with one
	// record of this kind in each group.
	GroupOf func(record.Key) (string, error)
	// Select finds this kind's records of a group. It is nil if and only if GroupOf is nil.
	Select func(group string) record.Selector
	// Single declares that a group has at most one record of this kind. Select must find this
	// record by its key, and GroupOf must map the key back to the group. Kinds without a GroupOf
	// are always single.
	Single bool
	// Content returns the group of a live record from the record's content. It excludes GroupOf and
	// Select. If one kind of a Spec sets it, all groups of the Spec go by content, in both
	// directions. A kind of such a Spec without Content uses GroupOf, or the key itself if GroupOf
	// is nil. Related records of both sides must name the same group.
	Content func(record.Record) (group string, err error)
}

// Side is the part of a Spec that belongs to one version.
type Side struct {
	Kinds []GroupedKind
	// Anchor returns the record of a group whose guard stands for the whole group. Each group has
	// exactly one anchor, live or not. If Anchor is nil, the anchor is the record of Kinds[0] whose
	// key is the group. It must be nil for groups by content, because their lineage entries are the
	// anchors.
	Anchor func(group string) (kind string, key record.Key)
}

// Spec is one transformer between two adjacent versions.
type Spec struct {
	Name     string // unique in its registry, for example "lrp" or "packages"
	Revision string // the author changes it whenever the result of Up or Down changes
	Old, New Side
	Up, Down Func
	// UpNeedsHave and DownNeedsHave ask for the complement. A target side with several records in a
	// group always gets it, because the engine must find the records to delete.
	UpNeedsHave, DownNeedsHave bool
	// UpNames maps the names of the first kind of Old to the names of the first kind of New;
	// DownNames maps them back. A Spec declares them if the records of these kinds decide whether a
	// group exists. If they are nil, the mapping is unknown and callers that need a name read the
	// groups.
	UpNames, DownNames Mapping
	// Reversal declares how the result is known to be reversible. The zero value tries it for every
	// group.
	Reversal Reversal
	// Imports lists the references to other services whose keys Up rewrites. Plans show them. Nil
	// means none.
	Imports []Import
	// Discontinued declares that the kinds of Old have no counterpart in the new version. Such a
	// Spec has no New, Up or Down. The engine does not copy the records of these kinds. The kinds
	// take part in the switch, so the switch stops all writes to them. After a rollback they are as
	// they were before.
	Discontinued bool
	// Introduced declares that the kinds of New have no counterpart in the old version. Such a Spec
	// has no Old, Up or Down. The kinds are empty when the new version becomes active. After a
	// rollback their records stay in the new version's namespace, which no client reads or writes
	// then. They are visible again once the new version is active again.
	Introduced bool

	// introduced is the reason why kinds of New have no counterpart in the old version of a chain:
	// an inner step makes them from kinds that only an inner version has. It is empty for all other
	// specs.
	introduced string
}

// GroupID identifies a group across the specs of a Direction. It is comparable.
type GroupID struct {
	Spec int
	Name string
}

// Direction is a compiled transformation from one version to another, as the engine uses it. Its
// methods are safe for concurrent use.
type Direction interface {
	// From and To return the names of the source and the target, as Registry.Direction got them:
	// v1, or v1@b.
	From() string
	To() string
	// Hash identifies the transformation. Controllers with another hash do not take part.
	Hash() string
	// SourceKinds and TargetKinds return the kinds of the two sides. TargetKinds includes lineage
	// kinds. The caller owns the slices.
	SourceKinds() []record.KindSpec
	TargetKinds() []record.KindSpec
	// GroupOf returns the group of a source record. For groups by content it returns the record's
	// unit, which Resolver accepts. ok is false if the kind is not part of the direction. An error
	// means that the key has no group; the caller parks the record.
	GroupOf(kind string, key record.Key) (id GroupID, ok bool, err error)
	// GroupOfTarget is the counterpart of GroupOf for a target record.
	GroupOfTarget(kind string, key record.Key) (id GroupID, ok bool, err error)
	// SourceSelect and TargetSelect return selectors for all records of a group.
	SourceSelect(id GroupID) []record.Selector
	TargetSelect(id GroupID) []record.Selector
	// Anchor returns the target's anchor of a group.
	Anchor(id GroupID) (kind string, key record.Key)
	// Whole reports whether a source group with a record of this kind never has another record. A
	// scanned record can then be transformed without reading its group.
	Whole(kind string) bool
	// Twin returns the target kind whose records have the same keys as a source kind's records and
	// depend on nothing else: a group is one record with the same key on both sides. It returns ""
	// if there is no such kind.
	Twin(kind string) string
	// LineageKind returns the target kind that holds the lineage of a spec whose groups go by
	// content. It returns "" for other specs.
	LineageKind(spec int) string
	// ContentOf returns the group of a live source record. An error means that it has no group.
	ContentOf(r record.Record) (group string, err error)
	// NeedsHave reports whether Transform needs the target's present records of the group.
	NeedsHave(id GroupID) bool
	// Transform computes the target's records of a group, sorted by kind and key, each in its
	// stored form (record.Stored). An error, or a panic of the transformer, concerns this group
	// alone. A result that cannot be taken back to src is such an error, unless the Spec declares
	// otherwise.
	Transform(id GroupID, src, have Group) ([]record.Record, error)
}

// KeyMap maps the names of one kind between two versions of another service, as far as one name
// follows from the other. It comes from a lens (lens.Lens.KeyMap) or from Go functions.
type KeyMap struct {
	// New maps a name of the old version to the new version, and Old maps a name of the new version
	// to the old one. Each returns an error for a name that is impossible in its input version.
	New, Old func(name string) (string, error)
}

// Others returns the other names of a resource: its new name if name is an old one, and its old
// name if name is a new one.
func (m KeyMap) Others(name string) []string {
	var out []string
	for _, f := range []func(string) (string, error){m.New, m.Old} {
		if other, err := f(name); err == nil && other != name {
			out = append(out, other)
		}
	}
	return out
}
