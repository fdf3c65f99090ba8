// Package verify compares a source namespace with its target through the transform. Two conditions
// must hold: transforming a source group over the target's present records changes nothing, and the
// target holds no other records.
//
// A group is the set of records that transform together. Most groups go by name: the key alone
// gives the group. Groups by content need lineage, a kind in the target that stores which source
// records a group consists of.
//
// # Guarantees
//
// Comparer reads source and target at different snapshots, so a difference may only mean that a
// change has not arrived yet. Callers compare differing groups again, at a later snapshot, until
// they agree. The engine does so continuously, and Run does it on demand. A comparison holds at
// most a page of each side in memory, plus the ids of the differing groups.
//
// Comparer resolves groups by content as the engine does. They are in sync under three conditions.
// Lineage and content name the same groups. The lineage of each group lists exactly its members.
// The members make exactly the group's records. A target record differs if no lineage knows it, or
// if the group in its entry does not list it.
//
// EstimateLoss uses the same comparison to count the records that a return to an abandoned version
// would lose.
//
// # What it does not own
//
// It writes nothing, and does not decide the consequences of a lasting difference.
//
// Begin to read at Comparer.Run.
//
// It is not for users and may change with any version.
package verify
