// Package syncer copies one namespace into another and keeps the copy in sync with its source. A
// controller runs an Engine for each direction.
//
// # Vocabulary
//
// A namespace is the database of one version of the data. A kind is one of its collections, and a
// record is a document there. A group is a set of records that is transformed and written as one. A
// shard is a fixed share of the groups. The direction epoch is a number that grows with every
// switch.
//
// An Engine serves one direction: a source, a target, a transformation and a direction epoch. It
// works for the shards that its controller owns. Several controllers, each with an Engine, share a
// direction.
//
// # How a record travels
//
// A change event marks its group as dirty. The engine reads the dirty groups of a batch in one
// snapshot that is not older than the batch. It transforms them and applies them under a guard. The
// guard consists of the direction epoch and the version of the snapshot. A write takes effect only
// over a lower guard. A group that is gone from the source becomes a tombstone, a guarded mark of
// its delete. Writes may therefore be repeated, late, reordered, or made by several controllers:
// the newest state stands.
//
// # How a range is copied
//
// A worker inserts pages without guards (record.Applier.Load). For a fixed-name kind, which an
// application uses directly under its name, this is twice as fast as an insert with a guard beside
// each document. Documents that exist already are applied like changes. A load can go wrong in two
// ways:
//
//   - It can bring back a record that was deleted between its read and its insert.
//   - It can leave part of a group behind when its process is killed.
//
// So comparison starts only after all ranges of all shards are copied and the target's kinds are
// renamed (upgradestate.FenceLoaders). The rename makes the database refuse inserts of loaders that
// come late. The comparison covers both sides and repairs differences under guards. A record
// without a guard counts as older than any guard. If its source has changed since the start of the
// plan, sync writes it with a guard before the shard is ready. If its source has not changed, all
// copies of it are equal.
//
// # Guarantees
//
//   - The start position is stored before the copy starts.
//   - A checkpoint holds finished work only: the changes before its position are applied and
//     compared with the source.
//   - A group that cannot be transformed or stored is parked: an entry with its name and error is
//     stored, and the entry blocks the switch until the group is fixed or an operator waives it.
//     The entry is stored before the work that met the group counts as done. For groups by content
//     it is stored before the group counts as compared (failing.go).
//   - After a kill any controller resumes from the checkpoints and repeats a few seconds of work at
//     most.
//
// # Groups by content
//
// Most groups follow from a record's key. The others follow from the content of records. For these,
// a change event or a page of a copy names only a record, not its group. Such a record is a unit:
// shards, late comparisons and parked entries refer to it. transform.Resolver finds the groups of a
// unit by its contents and by lineage, the stored relation of source records to groups and target
// records. It writes these groups together, and only if each record and lineage entry is as it was
// read.
//
// No pass over the source builds the lineage before the copy. A group grows while the copy meets
// its members: each one joins the group in the lineage, and the whole group is written again from
// one snapshot. If two controllers join at the same time, one of them reads again, so that the
// later one writes the whole group. A group of n members is read up to n times, so groups should be
// small. The Resolver bounds them.
//
// A group that cannot be transformed while it is incomplete is not parked. Its members wait in the
// lineage for the next member. After the copy, each record is compared. A unit that fails then, or
// after a change, waits some seconds before it is parked: the rest of its group may be in another
// batch or on another controller. Target records count as orphans only after everything is copied.
//
// # Shards
//
// A change belongs to the shard of its group (shards.Of). The ranges of the copy are assigned to
// shards by number, so that the source is read once and not once per shard. A shard is ready when
// its ranges are copied and compared, its changes are applied, and it has no parked group.
//
// # Lost history
//
// The source's log may no longer reach back to a checkpoint, or the stream may be invalidated
// (record.ErrHistoryLost). This does not cause a new copy. The affected shards withdraw their ready
// reports and resume at the present position. That position is stored, with the mark of a rescan,
// before anything is compared.
//
// The rescan starts when all shards are copied and loaders are fenced again, since loaders may hold
// reads from before the loss. It walks the keys of both sides. It compares the groups of these
// shards in all ranges at reads not older than that position, and repairs them. On the target's
// side it finds the records that the source has lost, except those that the latest switch left
// there by a waiver (Parked.Kept). The engine follows changes meanwhile.
//
// A fence within the lost history is never seen. Such a shard does not drain, and the switch aborts
// at its deadline. Kinds under their applications' names cannot be renamed, so the rescan writes
// each of their groups to give it a guard.
//
// # Speed
//
// Bulk work (copy, whole comparison, rescan) asks a throttle.Pacer before each page. Changes are
// followed without that limit. An unthrottled copy reads the next page of a range while it writes
// the present one.
//
// # Return to a snapshot
//
// An upgrade may return to the old data as they are (snapshot.go). The engine then plans, copies
// and follows nothing, and only makes the reports of the switch.
//
// # What this package does not own
//
// The package does not decide when to switch or how to make a fence (switchover). It does not
// assign shards to controllers (shards), and it does not store the Deployment (deployment).
//
// # Where to begin
//
// Begin with engine.go (Run), then tail.go and apply.go (changes), copy.go (ranges), compare.go
// (comparison) and report.go (readiness).
//
// It is not for users and may change with any version.
package syncer
