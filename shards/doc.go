// Package shards decides who works on what: the ring that groups of records are spread
// over, and the ownership of its slots by the controllers that are alive.
//
// # Vocabulary
//
// A shard is a slot of the ring. A member is a controller that is registered under a
// lease. A lock is the key of a shard that its owner created under that lease; its
// create revision names this period of ownership and no other.
//
// # Life of a lock
//
// Every Pool computes the same assignment from the list of members. It takes the locks
// that are assigned to it once they are free, and lists those that are assigned to
// somebody else as Leaving. The engine stops work on such a shard, stores its
// checkpoint and calls Release; only then can the other one take it. Nobody waits for a
// clock: takers watch the locks.
//
// # Guarantees
//
// At any instant at most one Lock of a shard passes its Condition in a commit. That is
// what everything that must not be done by a former owner is tied to. Owned is only as
// fresh as this process: one that was paused believes in its locks for a moment after
// it goes on, and its commits are refused.
//
// # Failure
//
// A member that dies, is cut off or stopped loses its lease and with it all locks
// at once; the others take them over. When it returns it registers again. Errors of the
// store are logged and tried again; only a wrong configuration ends Run.
//
// The package does not know what is done in a shard, and it is no fence for databases:
// those refuse late writers by themselves.
//
// It is not for users and may change with any version.
package shards
