// Package throttle decides how fast bulk work may go: copying, and comparing as a whole. A
// Pacer is asked before each page. It holds work back for what an operator sets in the
// record (a pause, a rate, a time of day), and for what the databases need for their
// clients.
//
// Pressure. About once a second, while bulk work is asked for, both databases are
// measured. Work that presses on one (replication that falls behind, operations that
// queue, a cache full of what is still to be written, processors above the bound, errors)
// is halved, down to a small rate; when nothing is strained it grows again by steps, until nothing
// limits it. Where going on would make clients wait, all work stops until it is over.
//
// Guarantees. A change of the pace in the record counts for the next page. A database that
// cannot be measured stops bulk work: nobody knows then what it does to clients.
//
// It does not own what is followed: changes are applied at any pressure, or the source's
// history would pass the checkpoints. It measures nothing itself (record.Monitor).
//
// It is not for users and may change with any version.
package throttle
