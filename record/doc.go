// Package record is the contract between the engine and any database.
//
// A namespace (one version's database) holds kinds, kinds hold records, a
// record has a Key and a document. Documents travel as raw BSON in batches, and
// nothing here decodes what no transformer asked for.
//
// # Guarantees a backend gives
//
//   - A data command carries a Token: the physical name and the identity of the
//     kind. After a Fence of that kind was confirmed, every command that carries
//     an earlier token fails with ErrFenced and has no effect, deletes included,
//     however long its sender slept (managed kinds; for fixed-name kinds as far
//     as the FenceClass defines).
//   - Changes are hints: a Change means that a key is dirty, and never what it holds.
//     The truth is re-read with Reader.Read at one snapshot, whose Version is the
//     version of every record in it, the absent ones included.
//   - Apply writes a group only where every guard it meets is lower, and all of
//     it or nothing. Stale, duplicate, reordered and resurrecting writes are
//     no-ops with any number of writers.
//   - Documents of fixed-name kinds are never interpreted and never changed: what
//     comes out is, byte for byte, what the application or an Apply put in.
//   - What is acknowledged survives a failover (majority writes), and what could
//     not be learned is ErrUnknown, never a guess.
//
// The suite in recordtest checks all of this; each backend runs it.
//
// # What this package does not own
//
// Which token is current (the Deployment does), how records of one version
// become those of another (transform), and who works on which shard (shards).
package record
