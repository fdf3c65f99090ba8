// Package syncer copies one namespace into another and keeps it in sync: copy, tail,
// drain, checkpoint, park. One Engine works on one direction (source, target,
// transform, direction epoch) for the shards that this controller owns.
//
// How a record travels. A change is a hint that its group is dirty. The dirty groups of
// a batch are read at one snapshot not older than the batch, transformed, and applied
// under a guard made of the direction epoch and that snapshot's version; a group that
// is gone becomes a tombstone. So everything may be done twice, late, out of order and by
// several controllers, and the newest state stands.
//
// How a range is copied. Its pages are inserted plainly (record.Applier.Load), which is twice as
// fast for a fixed-name kind as a guard next to each document; what is there already is
// applied like a change. A load can do two things wrong: bring back a record that was deleted
// between its read and its insert, and leave a group by halves when its process is killed. So,
// when all ranges of all shards are copied, the kinds of the target are renamed
// (upgradestate.FenceLoaders), and only then is anything compared: what loaders did wrong is
// found from both sides and repaired under guards, and what one that slept sends afterwards is
// refused. A record without a guard counts as older than any: if its source has changed since
// the plan's start, sync has written it with a guard before its shard is ready; if not, every
// image of it is the same.
//
// Guarantees. The start position is stored before the copy starts. A checkpoint holds
// only what is done: changes before its position are applied and compared once more
// with the source. A group that cannot be transformed or stored is parked before the
// work that met it counts as done (of groups by content: before it counts as compared, see
// failing.go). After a kill, any controller goes on from the
// checkpoints, at most a few seconds of work earlier.
//
// Groups by content. A change, and a page of a copy, name a record and not its
// group. Such a record is a unit: it is what is sharded, compared late and parked.
// transform.Resolver finds the groups that it belongs to, by lineage and by content, and
// these are written together, each entry and record expected to be as it was read. No
// pass over the source builds lineage before the copy. A group grows as the copy meets
// its members: each one joins it in the lineage, and the group is made again of all that
// have, at one snapshot; of two controllers that join at once one has to read again,
// so the one that joins last writes the whole group. A group that cannot be transformed while
// it is incomplete is not parked: its members wait, noted in the lineage, where the next
// one finds them. When all ranges of all shards are copied each record is compared, and
// what fails then waits for some seconds and is parked, as is what fails when it changes:
// the rest of its group may be in another batch or on another controller. Before all is
// copied no target record is taken for an orphan. A group of n members is read n times by
// this, unless they share pages, so groups should be small; the Resolver bounds them.
//
// Shards. A change belongs to the shard of its group (shards.Of). The ranges of the
// initial copy are dealt out to shards by their number, so that sixteen shards do not
// read the source sixteen times. A shard is ready when its ranges are copied and
// compared, its changes are caught up with, and nothing of it is parked.
//
// A history that is lost (record.ErrHistoryLost: the source's log no longer reaches back,
// or the stream was invalidated) does not mean a new copy. The shards that followed it take
// their reports back and begin again at a position taken now, which is stored with the
// mark of a rescan before anything is compared. When all shards are copied, and loaders are
// fenced anew, for what others had read before the loss is in no guard, a pass walks
// the keys of both sides, compares the groups of these shards, whichever range they are
// in, at reads not older than that position, and repairs; what the source no longer has is
// found on the target's side, but for what the latest switch left there by a waiver
// (Parked.Kept). Changes are followed meanwhile. A fence that lies in what was
// lost is never seen, so that its shard does not drain: that switch aborts by its deadline.
// Where the latest switch left kinds under their applications' names, which are not renamed, the
// pass writes every group instead, so that each has a guard.
//
// Bulk work (copying, comparing as a whole, a rescan) asks a pace.Pacer before each page.
// Changes are followed at any pace. A copy that nothing holds back reads the next page of a range
// while one is written.
//
// The snapshot. An upgrade may go back to the old data as they are (snapshot.go): then
// nothing is planned, copied or followed, and only the reports of the switch are made.
//
// It does not decide when to switch or how a fence is made (switchover), which
// controller owns what (shards), or how the Deployment is stored (deployment).
//
// It is not for users and may change with any version.
package syncer
