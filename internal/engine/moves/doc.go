// Package moves drives the moves of records to other regions. A Mover runs in one server of each
// region. It reads the records of its own region and their copies, and takes the next step of each
// move. Package resource/region begins a move, cancels it, and shows records that move.
//
// # The protocol
//
// The state of a move is a field of the record (region.Move), so a sync carries it to the other version
// like every field, and a switch or a rollback of either region does not lose it. Each region writes
// its own record only, and sees the other one's in its copies:
//
//	step   old owner                    new owner
//	begin  leaving(id): frozen
//	1                                   arriving(id, nonce): a reservation, invisible and read-only
//	2      left(id, nonce): given away
//	3                                   arrived(id, nonce): owned, clients can write
//	4      deleted; its copy is shown
//
// missing(id, nonce) follows left if the new owner has lost its part. A person decides about such a record.
//
// Each step is one write on the condition that the own record did not change, and rests on what the
// copies show:
//
//   - Only the old owner ends its ownership (step 2), while the record is frozen. Until then it can
//     cancel without asking anybody.
//   - The new owner begins its ownership (step 3) only from the reservation whose nonce the old owner
//     named in left. left never ends before step 3, so it may be an old copy.
//   - id and nonce are new in every move, so a server that slept through a whole move cannot repeat a
//     step of it: its reservation has a nonce that no left names.
//
// A copy can be old or missing. So a step that rests on the absence of something asks the other region
// (Standing), which reads it linearizably: a reservation is deleted only if the old owner has neither
// leaving nor left for it. A record that left is deleted only if a copy shows that it has arrived. If there
// is no copy and its reservation does not stand any more, it is missing: the new owner has lost it, or the
// answer is wrong. So while the copy of the old owner shows left, the new owner can neither delete the
// record nor move it on. TestExplore goes through all interleavings, and its mutants leave out one of these
// rules each.
//
// # Guarantees
//
//   - At most one region accepts writes of a record, at any time. For a moment it may be none.
//   - The new owner begins with the content that the old owner had last.
//   - Every step may be repeated, by several movers at a time and after any wait.
//
// # What this package does not own
//
// It makes no copies (package copies), and it does not elect a server (vrunner.Controller).
//
// Begin to read at Decide, and at Mover.
package moves
