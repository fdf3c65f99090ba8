// Package verify compares a source namespace with its target through the transform:
// putting a group of the source into what the target holds must change nothing, and the
// target must hold nothing else.
//
// Source and target are read at different snapshots, so that a difference may only mean
// that a change has not arrived yet. Callers compare what differs again, at a later
// snapshot, until it agrees; the engine does so continuously and Run does it on demand.
// Memory is bounded by a page of each, whatever the size of the data.
//
// Groups by content are resolved as the engine does it: they are in sync when lineage and
// content name the same groups, the lineage of a group lists what belongs to it, and its
// records are those that its members make. A record of the target that no lineage knows, or
// that the group which its entry names does not list, differs.
//
// EstimateLoss counts, by the same comparison, what a return to a version as it was left
// would not have.
//
// It writes nothing, and does not decide what a lasting difference means.
//
// It is not for users and may change with any version.
package verify
