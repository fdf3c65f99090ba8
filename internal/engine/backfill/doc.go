// Package backfill runs data updates. A data update applies a named task to all records of a kind,
// within the current version, for example to fill a new field.
//
// # Vocabulary
//
// A transform.Task defines the change to one record. A service's registry holds its tasks next to
// its transformers. A run of a task is upgradestate.Update in the Deployment. The plan of a run
// cuts the kind into key ranges, one for each shard of the ring. The owner of a shard processes its
// range page by page, and stores a checkpoint under its ownership lock.
//
// # Guarantees
//
// Swap replaces a record only if it still equals, byte for byte, the document that the task
// received (record.Swapper). So no client's write is lost. The engine reads a changed record again.
//
// A run covers each record that exists from its start to its end. Such a record has passed through
// the task at least once, or counts as failed. A record created during the run passes through it
// only if its key lies ahead of its shard. The service must create records that need no update, so
// deploy the service before you begin the update.
//
// A task may meet a record twice, because a controller may be killed between a write and its
// checkpoint. A task must therefore be idempotent: the second time it receives its own result.
//
// A record stays unchanged if the task fails on it (an error or a panic), or if the database
// refuses the new document. The engine counts and shows the failure and continues with the others.
// A run with failures ends as "not done" in the history. A new run covers all records again.
//
// # Failure handling
//
// The engine leaves a lost shard at once. The next owner resumes from the checkpoint, which is less
// than a second of work old. A controller that lacks the task, or has another revision of it,
// reports that and leaves its shards to an owner that has it. While the Deployment names no
// collections to write to, because an upgrade completes an operation, the run waits. The state
// machine starts no switch during a run (upgradestate). A controller that pauses past the end of a
// run meets the next switch's fence, like any client.
//
// Syncs apply the changes of a task like any other change.
//
// # What it does not own
//
// It does not own shard ownership (shards), the storage of Deployment and journal (deployment), or
// the speed of bulk work (throttle).
//
// Begin to read at Engine.Run, then shard.work.
//
// It is not for users and may change with any version.
package backfill
