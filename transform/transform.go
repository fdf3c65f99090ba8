// Package transform turns groups of records of one version into the group of the next
// version, and back: transformers, the registry of a service's versions, and lenses.
//
// Records that transform together share a group. A Spec declares, for each side, which
// kinds take part and how their groups follow: from a key alone, so that a delete, which
// arrives with nothing but the key, finds its group; or from what a record holds.
//
// # Groups by content
//
// Content alone does not show the group that a record has left, nor its siblings, nor what
// was made of them. Lineage does: a hidden kind in the target, written in the same
// transactions as the records, holds for each source record its group, for each group its
// members and what the target holds of it, and for each target record its group. The
// engine deals in units, which are single records; Resolver turns units into components:
// the groups that their lineage and their content name, linked where a record moves from
// one to the other. A component is written whole or not at all, and every entry that it
// was made of must still be as it was read. A group by name is a component of its own, so
// that there is one way to bring groups over (Transfer), whatever they go by.
//
// Guarantees: what a transformer makes of a group gives that group again when it is taken
// back over it, or is an error of the group (Reversal). A transformer is pure and deterministic; it neither keeps nor modifies
// the bytes it is given. A panic of a transformer is returned as an error with its
// stack. Direction.Hash changes when any declared part changes.
//
// It does not read or write databases (record), nor decide when (syncer).
package transform

import (
	"dbcontroller.dev/record"
)

// Group is the records of one group of one version, live ones only, ordered by kind
// and then key. An empty Records means that the group does not exist, or no longer exists.
type Group struct {
	Name    string
	Records []record.Record
}

// Func computes what the other side must hold for a group. have is what it holds now,
// the complement: fields that src cannot express are taken from it. have is empty when
// the other side holds nothing, or when Spec declares that it is not needed. The result
// carries Kind, Key and Doc (with the _id of Key); a group that must not exist is nil.
type Func func(src, have Group) ([]record.Record, error)

// GroupedKind declares how records of one kind fall into groups.
type GroupedKind struct {
	record.KindSpec
	// GroupOf names the group of a key. Nil: the key itself is the group, one record of
	// this kind in each.
	GroupOf func(record.Key) (string, error)
	// Select finds this kind's records of a group. Nil goes with a nil GroupOf.
	Select func(group string) record.Selector
	// Single declares that a group has one record of this kind at most, and that Select
	// finds it by its key, which GroupOf leads back from. Kinds without a GroupOf are
	// single.
	Single bool
	// Content names the group of a live record by what it holds; it excludes GroupOf and
	// Select. Where any kind of a Spec has it, all groups of the Spec go by content, both
	// ways: that of a kind without it is what GroupOf returns for the key, or the key
	// itself. Records of both sides that belong together must name the same group.
	Content func(record.Record) (group string, err error)
}

// Side is one version's part of a Spec.
type Side struct {
	Kinds []GroupedKind
	// Anchor is the record of a group whose guard stands for the whole group: each group
	// has exactly one, whether it is live or not. Nil: Kinds[0] with the group as key. Not
	// for groups by content, whose anchor is their lineage.
	Anchor func(group string) (kind string, key record.Key)
}

// Spec is one transformer between two adjacent versions.
type Spec struct {
	Name     string // unique in its registry, e.g. "lrp" or "packages"
	Revision string // the author changes it when the result of Up or Down changes
	Old, New Side
	Up, Down Func
	// UpNeedsHave and DownNeedsHave ask for the complement. A side with several records
	// in a group gets it always.
	UpNeedsHave, DownNeedsHave bool
	// UpNames and DownNames map the names of the first kind of Old to those of the first kind of
	// New, and back, where it is the records of these kinds that make a group exist. Nil: it is
	// not known, and a caller that needs a name goes by the groups.
	UpNames, DownNames Mapping
	// Reversal declares what ensures that each result can be taken back. The zero value
	// tries it with every group.
	Reversal Reversal
	// Imports are the references to other services that Up gives the keys of their new
	// versions, for plans. Nil: there are none.
	Imports []Import
	// Discontinued declares that the kinds of Old have no counterpart in the new version.
	// There is no New, Up and Down then. Their records are not copied; the kinds take part
	// in the switch, so that nobody writes them after it, and are as they were before if it
	// is rolled back.
	Discontinued bool
	// Introduced declares that the kinds of New have no counterpart in the old version. There is
	// no Old, Up and Down then. They are empty when the new version becomes active. After a
	// rollback their records stay in the namespace of the new version, where nobody reads or
	// writes them. They are there again when the new version is.
	Introduced bool

	// introduced is the reason why kinds of New have no counterpart in the old version: in
	// a chain, a step in the middle makes them of kinds that only the middle has. Empty for
	// all others.
	introduced string
}

// GroupID names a group across the specs of a Direction. Comparable.
type GroupID struct {
	Spec int
	Name string
}

// Direction is the compiled way from one version to another, as the engine uses it.
// Its methods may be called concurrently.
type Direction interface {
	From() string
	To() string
	// Hash identifies the transformation: controllers with another hash take no part.
	Hash() string
	SourceKinds() []record.KindSpec
	TargetKinds() []record.KindSpec
	// GroupOf names the group of a source record; for groups by content the unit that the
	// record is, which Resolver takes. ok is false for a kind that is not part of the
	// direction. An error means that the key cannot be grouped: park it.
	GroupOf(kind string, key record.Key) (id GroupID, ok bool, err error)
	// GroupOfTarget is GroupOf for a target record.
	GroupOfTarget(kind string, key record.Key) (id GroupID, ok bool, err error)
	// SourceSelect and TargetSelect find all records of a group.
	SourceSelect(id GroupID) []record.Selector
	TargetSelect(id GroupID) []record.Selector
	// Anchor is the target's anchor of a group.
	Anchor(id GroupID) (kind string, key record.Key)
	// Whole reports whether a source group of this kind is never more than the one
	// record, so that a scanned record can be transformed without reading its group.
	Whole(kind string) bool
	// Twin is the target kind whose records have the keys of a source kind's, and are made of
	// these alone: a group is one record with the same key on both sides. Empty: there is none.
	Twin(kind string) string
	// LineageKind is the kind in the target that holds the lineage of a spec whose groups
	// go by content; empty for others.
	LineageKind(spec int) string
	// ContentOf names the group of a live source record. An error means that it has none.
	ContentOf(r record.Record) (group string, err error)
	// NeedsHave reports whether Transform wants what the target holds.
	NeedsHave(id GroupID) bool
	// Transform computes the target's records of a group, sorted by kind and key, each as the
	// target stores it (record.Stored). Any
	// error (and a panic) concerns this group alone. A result that does not give back src
	// when it is taken back over it is such an error, unless the Spec declares otherwise.
	Transform(id GroupID, src, have Group) ([]record.Record, error)
}
