// Package upgradestate is the pure state machine of an upgrade. Apply turns a Deployment record and
// an Event into the next record. Actions returns the work that a record asks for. The package does
// no I/O, has no clock and no context, and imports nothing of this project but the limits. Drivers
// apply the events and execute the actions. Servers and engines read their places from the record.
//
// # Vocabulary
//
// A namespace is the database of one version of the data, and a kind is one of its collections. The
// source is the namespace of CurrentVersion. The target is the namespace of Upgrade.TargetVersion.
// A flip makes the target the current version. A rollback is the same machine with the roles
// swapped. The epoch counts flips.
//
// The records are divided into a fixed number of shards (the ring). A token is the name and the
// identity of a kind's collection; each command to a database carries one. A fence is a change at
// the database after which it refuses writes under earlier tokens. The fence class of a kind says
// how: by a rename (uuid, view, role), or by a mark (validator, writeBlock). A seal is a rename
// around the flip: of the target, so that no late controller writes to it, and of the source, so
// that no late client reads it. A driver is the controller that executes the actions. An operation
// is announced in Kind.Pending before a driver sends it. The record moves on only with the event
// that confirms it.
//
// # Lifecycle
//
// An upgrade goes from INITIAL_SYNCING to SWITCHING (steps HOLD, FENCE, DRAIN, SEAL_TARGET,
// SEAL_SOURCE) to the flip. The flip ends the upgrade with the other version and the next epoch.
// ABORT can follow any step of SWITCHING. It ends the upgrade with the same version, or returns to
// INITIAL_SYNCING for another attempt (Abort.Again). docs/state-diagram.md is drawn from the
// machine.
//
// Two sorts of operations outlive their upgrade:
//
//   - An announced seal of a target is completed after an abort. This comes before controllers
//     apply to the target again, and before the next SWITCHING.
//   - A kind that clients write under its own name (every fence class but uuid) is opened after the
//     flip. It is built under a hidden name, and its seal moves it to another hidden name. Only a
//     kind of the current version gets its own name or loses its old fence. Until that is confirmed
//     WritePlaces returns nothing. So no write of an application can reach a target that an abort
//     may still discard.
//
// # Requests of operators
//
// A switch starts only when SwitchBlocker returns "". It returns a reason in these cases:
//
//   - The deployment is paused (Pace).
//   - The upgrade holds at ready (Policy.Hold, AskSwitch).
//   - A data update runs.
//   - An operation is pending.
//   - A difference or a restore waits for a decision.
//
// An operator can retire a version after a switch has left it (Complete, Dropped). It is then gone
// for good. A rollback to a snapshot gives up all writes since the switch, and a later upgrade
// compares the other namespace as a whole. A repeated request changes nothing. Note adds each
// request to History, with its time and its author. No decision depends on the history.
//
// # Guarantees
//
// The tests explore every reachable state, together with a model of the databases and of processes
// that pause at any point. Mutants of the machine break one rule each, and the tests find each
// mutant. They check:
//
//   - At most one namespace can be written at the database itself, whatever tokens any process
//     holds. From DRAIN to the flip none can. WritePlaces names none in SWITCHING.
//   - A ready report counts for one upgrade id, phase and attempt only, and in SWITCHING only with
//     the fences in force.
//   - A flip needs every shard's report in DRAIN, bound to the fences in force, and all target
//     seals and last source renames confirmed. It publishes exactly those names.
//   - A client's token from before a flip opens nothing after it, for reads or writes. No
//     controller's token opens a namespace that clients write under uuid or view. A class that
//     keeps the collection's name has no new token.
//   - Reads of the current version find their kind until its last rename.
//   - An abort first resolves announced source renames, as completed or as impossible, so that no
//     late driver can move the source after it. It ends from every state even if no fence command
//     is ever answered, and never waits for the target.
//   - A failed attempt is retried as often as the policy allows, from the beginning, and not after
//     an operator's abort.
//   - No switch starts while it is blocked. No version is served while its namespace is dropped or
//     being dropped. No namespace is dropped without a request.
//   - No name or mark is announced twice. An event that is late, repeated or foreign changes
//     nothing.
//   - Where one transformation may write a target, no controller with another one can.
//   - Where a target may be compared, no controller can insert into it without guards
//     (FenceLoaders). A guard is the version stored with a record that makes the target refuse
//     older writes.
//   - From every state, the drivers alone can bring the upgrade to its end, with the same or the
//     other version.
//
// # Late operations
//
// A paused driver may send a command after the record has moved on. Most such commands are
// harmless. A late rename by identity does nothing: it does not find its old name, or an abort has
// taken its destination. The backend refuses a late view fence that was removed. A late Unfence
// ends only the fence in its From.
//
// Two commands do harm after an abort: a mark (validator, writeBlock), and a confirmed view fence
// repeated much later. The kind then refuses writes although the record shows it open. No data is
// lost, and the backends make the case rare, because they remember removed fences.
//
// # What this package does not own
//
// It does not own how an operation is executed (switchover), stored (deployment) or followed
// (vrunner, syncer). It does not decide when to switch (lag, verification, parked groups, time
// windows, the predicted pause), and it keeps no deadlines.
//
// # Where to begin
//
// Begin with types.go (the record), machine.go (the events), actions.go, and switching.go.
//
// It is not for users and may change with any version.
package upgradestate
