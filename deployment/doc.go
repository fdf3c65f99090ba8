// Package deployment keeps a Deployment in the coordination store.
//
// A Store is one deployment: its record, which changes by compare-and-swap of
// upgradestate.Apply and nothing else, and next to it what the engine keeps (plans,
// checkpoints, parked groups, progress) and what servers say of themselves. State and Feed
// are all of that together, once and again and again.
//
// Keys, all below <prefix>/<deployment name>/ (see docs/formats.md):
//
//	record                             JSON of upgradestate.Deployment
//	controllers/<id>, shards/%05d      owned by package shards
//	servers/<id>                       JSON of upgradestate.ServerState, leased
//	insecure/<id>                      JSON of Insecure, leased; only of controllers that warn
//	controllerKeys/<id>                which keys of records a controller has, leased
//	progress/<owner>                   JSON of []syncer.Progress, leased
//	readiness                          JSON of switchover.Readiness, leased
//	plans/<direction>                  JSON of syncer.Plan
//	checkpoints/<direction>/%05d       JSON of syncer.Checkpoint
//	parked/<direction>/%05d/<hash>     JSON of syncer.Parked
//	parked/<direction>/kinds/<kind>    every record of the kind is waived
//	updates/<id>/plan                  JSON of backfill.Plan
//	updates/<id>/checkpoints/%05d      JSON of backfill.Checkpoint
//	updating/<owner>                   JSON of backfill.Progress, leased
//	driver                             lock of the one who drives a switch
//
// and <prefix>/index/<deployment name>, written with the record, by which deployments
// are listed without reading all that lies below them.
//
// Guarantees: reads of the record are linearizable. A transition is made whole or not
// at all, together with the caller's conditions; an unknown outcome is resolved by
// reading. No commit has more than coord.MaxOps conditions and operations. Watches are
// conflated and go on by themselves after any error of the store.
//
// It does not answer calls (deployment/api), and does not decide what a transition does
// (upgradestate), who owns a shard (shards), or when to switch (switchover). Leases here are for liveness: whatever they delete is
// published again by its owner, and no promise rests on it.
//
// It is not for users and may change with any version.
package deployment
