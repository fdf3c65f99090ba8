// Package sealed encrypts the records of managed kinds in their database, with any backend. It
// wraps a record.Namespace and a record.OnceClient. Callers above it see plain documents.
//
// # Stored form
//
// A stored record has its _id, the top-level fields that a declared index reads, and Field. Field
// holds an envelope: the name of a key in clear, and the whole document encrypted with that key.
// The cipher is XAES-256-GCM. It is AES-256-GCM with a key derived anew for each record, so that
// random nonces never repeat, however many records a key has encrypted. The envelope is bound to
// the version, the kind and the key of its record, and does not open anywhere else.
//
// The backend's guards (versions of target records) and tombstones (markers of deleted records)
// stay readable. Fixed-name kinds are never encrypted, because an application reads them directly.
//
// # Terms
//
//   - Keys: the keys that the configuration gives to a process.
//   - State: the data in the database about a namespace's keys. It names the key that writers use,
//     and all keys that records may be under.
//   - Sealer: encrypts and decrypts with Keys according to a State.
//   - Whole: the promise in a State that every record is under the one key.
//   - Run: one pass over all records that brings them under a key.
//   - Stray: a key that a record was found under, although the State excludes it.
//
// # Guarantees
//
// All processes write under the key in the State, not under the active key of their own
// configuration. Namespace.Hold makes the database itself refuse documents under other keys
// (record.Labeler). The pass over all records (package backfill) finds earlier documents. It
// accepts only the State of its own run. So no promise depends on the age of a process's State, nor
// on a deposed primary that answers with an older State. With an older State, writes are refused
// and pages of the pass begin again.
//
// A writer that bypasses the database's check can still store other documents. A record under a
// former key opens for every process with that key, whatever the State is: only an owner of the key
// can have made it. The Sealer then withdraws the promise, so that another run begins. A plain
// record proves nothing. Where all records must be encrypted, a plain record is refused until an
// operator admits it.
//
// # Failures
//
// A Sealer never returns a record that it cannot decrypt, and never overwrites it. A record under a
// missing key is ErrKey. A changed or moved record is ErrTampered, and so is a plain record that
// the State does not allow. Both errors fail a client's call. They also fail a list, because a page
// without the record would show it as deleted. A Namespace returns a record.ErrUnreadable in the
// Err of its record and the other records as usual. The engine then parks that record, which means
// that it sets it aside with the error, and migrates the others.
//
// # What this package does not own
//
// Package config loads the keys, and package identity stores the State. Packages backfill and
// controller run the pass over all records.
//
// Begin to read in sealer.go, then state.go and envelope.go; turn.go has the change to another key.
//
// It is not for users and may change with any version.
package sealed
