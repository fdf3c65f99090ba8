// Package shards assigns work to controllers: it divides groups of records among the slots of a
// ring, and the slots among the live controllers. It also elects leaders (Campaign, Lead).
// Controllers run a Pool. Servers use only Lead.
//
// # Vocabulary
//
//   - Controller: a process that migrates data.
//   - Shard: a slot of the ring. The number of slots never changes.
//   - Coordination store: etcd, behind package coord.
//   - Lease: a promise of the store to delete keys if their owner is silent for some seconds.
//   - Member: a controller that is registered under a lease.
//   - Lock: the key of a shard that its owner created under its lease. The create revision of the
//     key identifies one period of ownership.
//   - Engine: the code that works on the owned shards (package syncer).
//
// # Life of a lock
//
// Every Pool computes the same assignment from the list of members. It takes its assigned locks
// once they are free. It lists owned shards that are assigned to another member as Leaving. The
// engine stops work on such a shard, stores its checkpoint and calls Release. Then the other member
// can take the lock. No step waits for a clock: each Pool watches the locks that it waits for.
//
// # Guarantees
//
// At any instant at most one Lock of a shard passes its Condition in a commit. The engine commits
// with that Condition every operation that a former owner must not complete. Owned may be out of
// date: after a pause a process lists its old locks for a moment. The store then refuses its
// commits.
//
// # Failure
//
// A member that dies, is cut off or stops loses its lease and all its locks at once, and the other
// members take them over. When it returns, it registers again. Errors of the store are logged and
// retried. Only a wrong configuration ends Run.
//
// # What this package does not own
//
// The package does not know the work within a shard. It does not keep late writers out of
// databases: the databases themselves refuse them.
//
// # Where to begin
//
// Begin with Pool (pool.go), then run.go and reconcile.go.
//
// It is not for users and may change with any version.
package shards
