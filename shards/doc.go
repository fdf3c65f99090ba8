// Package shards assigns work to controllers: it divides groups of records among the slots of a
// ring, and the slots among the live controllers. It also elects leaders (Campaign, Lead).
//
// # Vocabulary
//
// A shard is a slot of the ring. The number of slots never changes. A member is a controller that
// is registered under a lease of the coordination store. A lock is the key of a shard that its
// owner created under that lease. The create revision of the key identifies one period of
// ownership.
//
// # Life of a lock
//
// Every Pool computes the same assignment from the list of members. It takes its assigned locks
// once they are free. It lists owned shards that are assigned to another member as Leaving. The
// engine stops work on such a shard, stores its checkpoint and calls Release. Then the other member
// can take the lock. No step waits for a clock, since takers watch the locks.
//
// # Guarantees
//
// At any instant at most one Lock of a shard passes its Condition in a commit. Every operation that
// a former owner must not complete is committed with that Condition. Owned is only as fresh as this
// process: after a pause a process believes in its old locks for a moment, and the store refuses
// its commits.
//
// # Failure
//
// A member that dies, is cut off or stops loses its lease and all its locks at once, and the other
// members take them over. When it returns, it registers again. Errors of the store are logged and
// retried. Only a wrong configuration ends Run.
//
// The package does not know the work within a shard. It is no fence for databases, which refuse
// late writers by themselves.
//
// Begin with Pool (pool.go), then run.go and reconcile.go.
//
// It is not for users and may change with any version.
package shards
