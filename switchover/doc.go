// Package switchover drives an upgrade through SWITCHING: it does what the pure state
// machine (upgradestate.Actions) asks for, and reports to it what was confirmed.
//
// Any controller may drive; a lock decides who does, for liveness only. Every operation is
// announced in the record by compare-and-swap before it is sent, may be sent again by
// the next driver whatever became of it, and is confirmed at the database, so that a
// kill at any point leaves a state from which another driver goes on. The deadline of
// a switch is measured by the driver's own clock and only ever leads to an abort, which
// is safe at any time.
//
// Before a switch the driver publishes, for people, all that it waits for (Readiness): what
// the record holds back, parked groups, the window, a pause that is predicted to be too
// long, and what its Checks find in the databases. Nothing is decided on a prediction but
// to wait.
//
// It does not copy or compare (syncer), hold writes (vrunner), or know how a fence works
// (record.Fencer).
//
// It is not for users and may change with any version.
package switchover
