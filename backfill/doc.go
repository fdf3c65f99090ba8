// Package backfill runs data updates: a named task over all records of a kind, within the
// version that is served, such as filling a field that is new.
//
// # Vocabulary
//
// A transform.Task defines what is done to a record; the registry of a service holds its
// tasks next to its transformers. A run of a task is upgradestate.Update in the Deployment.
// Its plan cuts the kind into ranges of keys, range i for shard i of the ring; a shard is
// done by its owner, page by page, with a checkpoint under the owner's lock.
//
// # Guarantees
//
// A record is replaced only if it still is, byte for byte, what the task was given
// (record.Swapper): no write is lost. One that has changed is read again.
//
// When a run ends, each record that was there when it began, and still is, has been through
// the task at least once, or is counted as failed. A record that is created meanwhile has
// been if its key lies in what a shard had still before it; to create records that need no
// update is the service's part, so it is deployed before the update begins.
//
// A task may meet a record twice, for a controller may be killed between a write and its
// checkpoint, and so it must be idempotent: the second time it gets what it made.
//
// A record that the task fails on (an error or a panic), or whose new document the database
// refuses, stays as it is, is counted and shown, and the others go on. A run with failures
// ends as "not done" in the history; started again it goes over all records again.
//
// # Failure
//
// A shard that is lost is left at once; its next owner goes on from the checkpoint, less
// than a second of work earlier. A controller that lacks the task, or has another text of it,
// leaves its shards alone and reports that: they wait for an owner that has it. While the
// Deployment names no places to write (an operation of an upgrade is being completed) the run
// waits. No switch begins while it runs (upgradestate sees to that), and a controller that
// sleeps through its end meets the fence of the next one like any client.
//
// Syncs need not know: what a task writes is a change like any other, and is applied.
//
// It does not own who owns a shard (shards), how the Deployment and the journal are stored
// (deployment), or how fast bulk work may go (pace).
//
// It is not for users and may change with any version.
package backfill
