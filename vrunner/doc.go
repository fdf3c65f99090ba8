// Package vrunner runs the handler stack of the active version behind an open listener
// and swaps it at the flip: active stack, write gate, and reads, watches and streams that
// survive a switch.
//
// The gate. A write takes state and tokens together when it passes the gate, and keeps
// these tokens to its end. While the record says SWITCHING the gate holds writes and,
// once those in flight are finished, acknowledges. It opens again with the tokens of
// whichever version is then current, and the held writes go through that version's
// stack. Past a cap (HoldCap, MaxHeld) a write is refused with ErrHeld, which is safe to
// try again.
//
// Refusal by the database. A server that missed the switch (paused, cut off from etcd)
// sends with a stale token and gets record.ErrFenced, which is certain to have had no
// effect: the request is run again from its beginning, on the stack that is then active.
// A request that had an effect already is never run again.
//
// Reads use the present name and the announced next one, and wait for the flip while
// the old namespace is sealed, so that they neither fail nor see old data.
//
// Watches. View.Changes tells a handler which records are dirty: it subscribes, lists, and
// then reads what changed. One change stream for each version serves all subscribers,
// while there are any; it goes on where it was after failures, and through every rename.
// A subscriber keeps a bounded number of names. What does not fit, or is gone from the
// database's history, is ErrLost: list again.
//
// Streams. A streaming procedure passes no gate, is not counted as a write in flight and
// cannot write. Runner.Stream runs it for the active version and, after a flip, again for
// the next one. NewWatchHandler does so for a procedure that follows records, in front of
// the Runner: its clients keep one open stream over the flip and are sent what differs.
//
// Safety does not rest on this package: the database refuses late writes whatever a
// server does. It does not decide which version is active (the Deployment does) or know
// what the handlers do.
package vrunner
