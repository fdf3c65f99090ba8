// Package etcdstore implements record.Namespace and record.Client on an etcd cluster. The records
// of managed kinds (collections that only our client uses) lie below one prefix. Their guards (the
// source versions they were written from) and tombstones (deleted records) lie in the values.
//
// # Guarantees
//
// The package keeps all promises of package record through etcd's transactions. Every collection
// has a gate, a key that holds its physical name. Every transaction compares the gates of the kinds
// that it reads or writes. A Fence changes the gate. From that revision on, a client with the
// earlier name gets record.ErrFenced, for reads and deletes too.
//
// There is one log and one clock, the revision. Versions and positions consist of it. A read
// happens at one revision that is not older than the start of the call. It never waits for other
// commands.
//
// A write compares the revisions of the keys that it depends on. So a group, or a client's
// transaction, is one etcd transaction. The package sends it once. If the answer is lost, the
// result is record.ErrUnknown. So it is if etcd answers that it is full, unless a read proves that
// nothing was written: the transaction that crosses the quota takes effect nevertheless.
//
// # Fixed-name kinds
//
// An application keeps its records in keys of its own (Config.Fixed), as JSON or BSON. Their guards
// lie below the namespace's prefix. The keys never move: a hidden name exists only in the gate. A
// fence first takes the write permission from the application's roles and then changes the gate. So
// the gate's revision is after all writes of the application. A value that cannot be shown as a
// document is a record with an error (record.Record.Err).
//
// # Limits
//
// The limits are etcd's, and this package checks them in advance: Config.Operations records in a
// group or in a client's transaction, and Config.Bytes for all of them together. etcd keeps history
// until it compacts (its --auto-compaction options). A stream that is behind by then has lost its
// history. A scan of a large kind is not affected, because each page has a revision of its own.
//
// # What this package does not own
//
// etcd has no indexes, validators and expiry, so a kind that declares them is refused. Package
// internal/coord/etcdconn connects to etcd.
//
// Begin to read in layout.go, then store.go, apply.go and fence.go.
//
// It is not for users and may change with any version.
package etcdstore
