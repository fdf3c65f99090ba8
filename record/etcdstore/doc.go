// Package etcdstore is record.Namespace and record.Client on an etcd cluster: the records of
// managed kinds below one prefix, guards and tombstones in the values.
//
// # Guarantees
//
// All that package record promises, by etcd's own transactions. Every collection has a gate, a
// key that holds its physical name, and every transaction compares the gates of the kinds that
// it reads or writes: a Fence changes the gate, and from that revision on a client that still has
// the earlier name gets record.ErrFenced, reads and deletes included. There is one log and one
// clock, the revision, which is what versions and positions are made of. A read is one at a
// revision that is not older than the moment at which it was asked, and waits for nobody.
//
// What a record stands for is compared by the revision of its key, so that a group, or a
// client's transaction, is one transaction of etcd or none. It is sent once; where its answer
// is lost it is record.ErrUnknown.
//
// # Fixed-name kinds
//
// An application has its records in keys of its own (Config.Fixed), as JSON or BSON, and guards
// lie below the namespace's prefix. They are where they are under every name: a hidden name is
// that of the gate alone. A fence takes from the application's roles the right to write before it
// changes the gate, so that its revision is behind all that the application has written. What
// cannot be shown as a document is a record with an error (record.Record.Err).
//
// # Limits
//
// Those of etcd, which refuses more: Config.Operations records in a group or in a client's
// transaction, and Config.Bytes of them together. They are checked beforehand. History is kept
// until etcd compacts it (its --auto-compaction); a stream that is behind by then has lost its
// history, and a scan of a large kind whose pages are each at a revision of their own has not.
//
// # What this package does not own
//
// Indexes, validators and expiry: etcd has none, and a kind that declares them is refused. How
// etcd is reached is internal/etcdconn's.
//
// It is not for users and may change with any version.
package etcdstore
