// Package deployment stores Deployments in the coordination store (etcd).
//
// A deployment is a service or set of collections under one name, with its versions and the state
// of its upgrade. A Store holds one deployment. Its record changes only through upgradestate.Apply
// and compare-and-swap. Next to the record are the data of the engine (plans, checkpoints, parked
// groups, progress) and the announcements of servers and controllers. State reads all of that once,
// and Feed follows it.
//
// A direction is one way of syncing, from one version to another in one epoch; the epoch counts the
// switches. A parked group is a group of records that could not be transformed. It blocks the
// switch until it is fixed or waived by an operator. A beat is a counter in a version's database; a
// lower value than before shows that the database was restored from a backup.
//
// Keys, all below <prefix>/<deployment name>/ (see docs/formats.md):
//
//	record                             JSON of upgradestate.Deployment; during a removal, of Removal
//	controllers/<id>, shards/%05d      owned by package shards
//	servers/<id>                       JSON of upgradestate.ServerState, leased
//	insecure/<id>                      JSON of Insecure, leased; only controllers with warnings
//	controllerKeys/<id>                encryption keys that a controller has, leased
//	progress/<owner>                   JSON of []syncer.Progress, leased
//	readiness                          JSON of switchover.Readiness, leased
//	plans/<direction>                  JSON of syncer.Plan
//	checkpoints/<direction>/%05d       JSON of syncer.Checkpoint
//	parked/<direction>/%05d/<hash>     JSON of syncer.Parked
//	parked/<direction>/kinds/<kind>    every record of the kind is waived
//	updates/<id>/plan                  JSON of backfill.Plan
//	updates/<id>/checkpoints/%05d      JSON of backfill.Checkpoint
//	updating/<owner>                   JSON of backfill.Progress, leased
//	driver                             lock of the process that drives a switch
//
// The key <prefix>/index/<deployment name> is written with the record. It allows listing
// deployments without reading everything below them.
//
// # Guarantees
//
// Reads of the record are linearizable. A transition is stored as a whole or not at all, together
// with the caller's conditions. An unknown outcome is resolved by reading. No commit has more than
// coord.MaxOps conditions and operations. Watches skip intermediate values, and resume after any
// error of the store.
//
// # What it does not own
//
// Package internal/control/deployment/api answers calls. Package upgradestate decides what a transition does,
// package shards who owns a shard, and package switchover when to switch. Leases here serve
// liveness only. The owner of a leased key publishes it again, and no promise depends on it.
//
// # Where to begin
//
// Store in store.go, Apply in apply.go, and State in state.go.
//
// It is not for users and may change with any version.
package deployment
