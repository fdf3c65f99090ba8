// Package copies keeps read-only copies of the records that other regions own. A Follower watches the
// API of one region for one kind, and writes what it sees into the copies of one namespace. Package
// resource/region shows the copies.
//
// # How a follower works
//
// The watch of an owner sends all of its records in name order, then that this is complete, and then
// changes. While the first part arrives, the follower walks through its copies in the same order. It
// writes what differs and deletes the copies that the owner does not have. So it begins again after
// every interruption, and a copy that is equal costs no write. Copies stay as they are while the
// owner cannot be reached.
//
// # Guarantees
//
//   - Only the latest follower of a region and a kind writes. Each one raises a term in the state of
//     the copies when it starts, and each write holds only under its term. A process that slept
//     cannot put an old state over a newer one.
//   - Copies of different regions have different keys, and the collection has no owned records. So no
//     write of a follower reaches an owned record or another region's copy.
//   - Copies end at the state of the owner, if that stands still for long enough.
//   - A record that cannot be a copy has none. The others go on (Report.Left).
//   - Another region cannot fill the memory: messages, waiting events and pages have limits in bytes.
//
// # What this package does not own
//
// It does not decide which process follows (the server elects one), and it does not know where the
// namespace is at the moment (Space).
//
// Begin to read at Follower.
package copies
