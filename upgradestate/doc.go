// Package upgradestate is the pure state machine of an upgrade: a Deployment record
// and an Event give the next record, and Actions says what the record asks for. No I/O,
// no clock, no context, nothing of ours imported.
//
// # Vocabulary
//
// The source is the namespace of CurrentVersion, the target that of
// Upgrade.TargetVersion; after a flip they swap, and rollback is the same machine. An
// act (rename or mark) is announced in Kind.Pending before it is sent, and the record
// moves on only with the event that says it is confirmed.
//
// # Lifecycle
//
// No upgrade -> INITIAL_SYNCING -> SWITCHING (HOLD, FENCE, DRAIN, SEAL_TARGET,
// SEAL_SOURCE) -> flip (no upgrade, other version, epoch+1); ABORT from any step of
// SWITCHING -> no upgrade, or INITIAL_SYNCING once more (Abort.Again), same version. docs/state-diagram.md is drawn from the machine.
//
// Two kinds of operations outlive their upgrade. An announced seal of a target is completed
// after an abort, before controllers apply to it again and before another SWITCHING. And
// a kind that clients write under its own name (every fence class but uuid) is opened
// after the flip: a target is built under a hidden name, its seal moves it to another
// hidden name, and it gets its own name, or loses its old fence, only when it is the
// current version's. Until that is confirmed WritePlaces returns nothing. So no
// application's write can reach a target that may still be given up.
//
// # What operators ask for
//
// A switch begins only when SwitchBlocker returns nothing: the deployment is not paused (Pace),
// the upgrade need not be asked (Policy.Hold, AskSwitch), no data update runs, nothing is
// pending. A version that was left can be retired (Complete, Dropped): then it is gone for
// good. A rollback to a snapshot leaves behind what was written since the switch; the
// other namespace is compared as a whole when somebody goes forward again. What a person
// asks for a second time changes nothing. Note adds what happened, when and by whose
// wish, to the record's History; it takes no part in any decision.
//
// # Guarantees
//
// The tests explore every state that can be reached, together with a model of the
// databases and of processes that sleep at any point, and find each of some fifty
// mutants that break one rule. What they check:
//
//   - at most one namespace can be written, at the database itself, whatever tokens
//     anybody remembers: none from DRAIN to the flip; WritePlaces names none in SWITCHING;
//   - a ready report counts for one upgrade id, phase and attempt only, in SWITCHING only
//     with the fences in force;
//   - a flip needs every shard's report in DRAIN bound to the fences in force, all target
//     seals and all last source renames confirmed, and publishes exactly those names;
//   - a client's token from before a flip opens nothing after it, neither to read nor to
//     write, and no controller's token opens what clients write (uuid and view; a class
//     that keeps the collection's name has no new token to offer);
//   - reads of the current version find their kind until its last rename;
//   - an abort resolves announced source renames first, as completed or as impossible, so
//     that no sleeper can move the source after it; it ends from every state although no
//     fence's command is ever answered, and never waits for the target;
//   - an attempt that was given up is tried again as often as the policy says, from the
//     beginning, and not after an abort by a person;
//   - no switch begins that is held back, no version is served whose namespace is dropped
//     or being dropped, and no namespace goes without having been asked for;
//   - no name or mark is announced twice, and an event that comes late, twice or from
//     elsewhere changes nothing;
//   - where a transformation may write a target, no controller of another one can;
//   - where a target may be compared, nobody can load into it without guards (FenceLoaders);
//   - from every state drivers alone come to rest, with the same or the other version.
//
// # Late operations
//
// A rename by identity that is sent late finds nothing under its old name, or its
// destination taken by an abort; a view fence that was removed finds its way closed; and a
// Unfence ends only what its From names. Two commands cannot be taken back, which a driver
// that slept sends after an abort: a mark (validator, writeBlock), and a view fence that
// was confirmed once and is repeated a whole life later. They make the kind refuse writes
// although the record says it is open. Nothing is lost by it; the backends narrow it by
// remembering what was removed.
//
// # What this package does not own
//
// How an operation is done (switchover), stored (deployment), or seen (vrunner, syncer); when
// to switch (lag, verification, parked groups, time windows, the predicted pause), and
// deadlines.
//
// It is not for users and may change with any version.
package upgradestate
