// Package upgradestate is the pure state machine of an upgrade: a Deployment record
// and an Event give the next record and the actions it asks for. No I/O, no clock, no
// context, nothing of ours imported.
//
// Vocabulary. The source is the namespace of CurrentVersion, the target that of
// Upgrade.TargetVersion. An act (rename or mark) is announced in Kind.Pending before
// it is sent, and the record moves on only with the event that says it is confirmed.
//
// Lifecycle. No upgrade -> INITIAL_SYNCING -> SWITCHING (HOLD, FENCE, DRAIN,
// SEAL_TARGET, SEAL_SOURCE) -> flip (no upgrade, other version, epoch+1); ABORT from
// any step of SWITCHING -> no upgrade, same version.
//
// Guarantees, each explored over all reachable states in the tests:
//   - at most one namespace has write tokens, in SWITCHING none;
//   - a ready report counts for one upgrade id, phase and attempt only;
//   - a flip needs every shard's report in DRAIN or later bound to the fences in force, all target seals
//     and all last source renames confirmed, and publishes exactly those names;
//   - an abort completes announced source renames first, and a target rename left over
//     stays pending until it is confirmed, before which no SWITCHING starts;
//   - no name is used twice.
//
// It does not own how an act is done (switchover), stored (deployment), or seen
// (vrunner, syncer).
package upgradestate
