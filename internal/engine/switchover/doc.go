// Package switchover drives an upgrade through SWITCHING, the phase that makes the target version
// the current one. The pure state machine (upgradestate.Actions) decides the next actions. The
// Driver runs them against the databases and reports each confirmed result as an event.
//
// # Guarantees
//
// Any controller may drive. A lock elects the driver for liveness only: two drivers at once do no
// harm. The driver announces every operation in the Deployment's record by compare-and-swap before
// it sends it. The next driver may send the same operation again, whatever the first attempt did.
// The database confirms it. So another driver can resume after a kill at any point.
//
// The driver measures the deadline of a switch with its own clock. A passed deadline only leads to
// an abort, which is safe at any time.
//
// # Vocabulary
//
// A fence is the operation after which the source refuses late writers. The drain applies the last
// changes of the fenced source to the target. The seals are the final renames of target and source.
// The flip is the one transaction that makes the target the current version. A parked group is one
// that the engine could not transform; it blocks the switch until it is fixed or waived. Marks are
// notes in the databases themselves (package identity).
//
// Before a switch the driver publishes a readiness report for operators (Readiness). It lists
// everything that the driver waits for: blockers in the record, parked groups, the window, a
// predicted pause that is too long, and the findings of its Checks. A prediction can delay a
// switch, and decides nothing else.
//
// # What it does not own
//
// It does not copy or compare (package syncer), does not hold writes (package vrunner), and does
// not implement fences (record.Fencer).
//
// Begin to read at Driver.Run, then Driver.once.
//
// It is not for users and may change with any version.
package switchover
