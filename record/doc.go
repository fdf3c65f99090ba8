// Package record is the contract between the engine and any database. The engine copies one
// version's data into the next version, follows changes, compares both, and switches between them.
// It knows databases only through this package.
//
// Services and transformers need Record, Key, Mutation and the errors. Authors of a backend
// implement Namespace and Client (docs/backends.md).
//
// A namespace is the database of one version of a service. It holds kinds, which are collections.
// Kinds hold records, and a record has a Key and a document. Documents travel as raw BSON in
// batches. This package decodes only the fields that a caller asks for.
//
// # Vocabulary
//
//   - Managed kind: only our own client reads and writes it. Fixed-name kind: an existing
//     application uses the collection directly, under a name that the application knows.
//   - Token: the physical name and the identity of a kind's collection. Each data command carries
//     one.
//   - Fence: an operation on a kind after which commands with earlier tokens can no longer write.
//   - Guard: the direction epoch and the source version that a target record was written from. The
//     epoch grows with each switch. A write takes effect only over a lower guard.
//   - Tombstone: a deleted record of a target, kept with its guard so that a late write cannot
//     create the record again.
//   - Group: the records that are transformed and written together.
//   - Parked group: a group that was set aside with its error. It blocks the switch until it is
//     fixed or waived.
//
// # Guarantees of a backend
//
//   - A data command carries a Token. After a Fence of the kind is confirmed, commands with an
//     earlier token fail with ErrFenced and have no effect, however late they arrive. That includes
//     deletes. For fixed-name kinds this holds as far as the FenceClass defines it.
//   - Changes are hints. A Change means that a key is dirty, and carries no content. The engine
//     reads the record again with Reader.Read at one snapshot. The snapshot's Version is the
//     version of every record in it, including absent ones.
//   - Apply writes a group only if all its stored guards are lower. It writes the whole group or
//     nothing. Stale, duplicate, reordered and resurrecting writes have no effect, with any number
//     of writers.
//   - A backend neither interprets nor changes the documents of fixed-name kinds. Reads return the
//     same bytes that the application or an Apply wrote.
//   - Acknowledged writes survive a failover, because a majority of the members has them. If a
//     backend cannot learn the outcome of a command, it returns ErrUnknown and never guesses.
//
// The suite in package recordtest checks these guarantees. Each backend runs it.
//
// # What this package does not own
//
// The Deployment, the stored state of a service and its upgrade, decides which token is current
// (package upgradestate). Package transform turns records of one version into records of another.
// Package shards assigns the work to controllers.
//
// # Where to begin
//
// Read Store in store.go first: it is the interface that copying and following need. Namespace in
// namespace.go is everything that a backend offers a controller. Client is the interface for
// services.
package record
