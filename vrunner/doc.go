// Package vrunner runs the stack of the active version and swaps it at the flip: handlers
// behind an open listener, background controllers, start data; a write gate; and reads,
// watches and streams that survive a switch.
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
// Watches. View.Changes notifies a handler which records are dirty: it subscribes, lists,
// and then reads what changed. One change stream for each version serves all subscribers,
// while there are any; it goes on where it was after failures, and through every rename.
// A subscriber keeps a bounded number of names. What does not fit, or is gone from the
// database's history, is ErrLost: list again.
//
// Streams. A streaming procedure passes no gate, is not counted as a write in flight and
// cannot write. Runner.Stream runs it for the active version and, after a flip, again for
// the next one. NewWatchHandler does so for a procedure that follows records, in front of
// the Runner: its clients keep one open stream over the flip and are sent what differs.
//
// Controllers (Stack.Controllers) are a version's background work. They run while it is
// active, and are started on a linearizable read of the record only. A switch ends their
// contexts when it holds writes, and finishes a write that is on its way; the next
// version's are started after the flip, or the same ones again after an abort. The switch
// waits for no controller, and the next ones not for longer than 3 s: one that goes on is
// counted and warned of, its writes are refused here and by the database. Errors and
// panics end a run, which begins again after a pause. A controller runs at every server,
// or at one that Config.Lead elects; an election is for economy and decides no right to
// write.
//
// Fixtures (Stack.Fixtures) are what a version starts with. A server makes them when the
// version is active and can be written, with the tokens of that version, together with a
// marker in one transaction: so a version that was not flipped to has none, one of several
// servers makes them, a server that slept makes none, and they are made once in the life
// of the namespace, whatever clients or switches do to them later. Namespaces of one API
// version share them: where a version moves to another place, only the marker is made.
// Each server lets its requests through, the held ones included, when it has made or seen
// the marker, or after a second in which the database did not let it; it then goes on
// trying while they run. It knows nothing of requests at other servers: what one of them
// writes may be there before the fixtures are, and is left alone. Streams do not wait.
//
// Safety does not rest on this package: the database refuses late writes whatever a
// server does. It does not decide which version is active (the Deployment does) or know
// what the handlers do.
package vrunner
