// Package sink follows a namespace, the database of one version, into something else that is made
// from its records. A search index is such a sink.
//
// A Follower reads all records once, and then the changes. It makes a document of each record and
// writes it into the Sink. The sink also keeps the place up to which it has the changes, so that a
// restart continues there.
//
// # Vocabulary
//
// A scan reads all records of the namespace. Each scan has a generation, a number that grows. A
// guard is the generation and the version of the snapshot that a document was made from. A
// tombstone is what a deleted record leaves: its guard.
//
// # Guarantees
//
// A write has an effect only over a lower guard. Late, repeated and reordered writes are therefore
// no-ops, and the scan and the changes may write at the same time. A tombstone stays as long as a
// write from before the deletion may still arrive.
//
// The sink stores its State after the writes that the State covers, or together with them. A kill
// therefore repeats work and loses none.
//
// If the place is lost, because the database no longer has its history or is another one, the
// Follower scans again in a new generation. What that scan and the changes since did not write is
// no longer a record, and Forget removes it. Guards of another database are never compared: the
// generation decides first.
//
// The Follower knows up to which moment the sink is level. The sink then has everything that was
// acknowledged before that moment. It learns this from positions of the database, and not from
// clocks of other machines.
//
// # Failure handling
//
// Run repeats everything after an error, with pauses, until its context ends. After an
// ErrReopen it ends, and its owner opens the sink again. A record whose
// document cannot be made is in the sink under its name alone, and counts as failed.
//
// # What this package does not own
//
// It does not know tokens or the Deployment: the Source finds the collections. It does not know
// what a sink does with its documents. A sink is derived data, so nothing here protects it against
// loss. One process at a time writes into a sink: the sink itself must refuse a second one.
//
// Begin to read at Sink and Source, then Follower.Run. Package sinktest is the suite of all sinks.
//
// It is not for users and may change with any version.
package sink
