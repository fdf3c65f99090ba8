// Package sealed keeps the records of managed kinds encrypted in their database, whatever
// backend that is: it stands in front of a record.Namespace and of a record.OnceClient, and
// what is above it sees plain documents.
//
// # What is stored
//
// A record is its _id, the top-level fields that a declared index reads, and Field, which holds
// an envelope: the name of a key in clear, and the whole document under that key, by
// XAES-256-GCM (AES-256-GCM with a key that is derived anew for each record, so that a random
// nonce cannot repeat however many records a key has seen). The version, the kind and the key
// of the record are bound to it: an envelope that was moved elsewhere does not open. Guards and
// tombstones are the backend's, and stay readable. Fixed-name kinds are never encrypted, for an
// application reads them.
//
// # Vocabulary
//
// Keys are what a configuration gives a process. A State is what the database itself holds of
// a namespace's keys: which one records are written under, and which ones there may be records
// under. A Sealer has both. Whole is the promise that every record is under the one key.
//
// # What the promise is worth
//
// All processes write under the key that the State names, not under the one that each is
// configured with, and Namespace.Hold has the database itself refuse what is under another
// (record.Labeler). What was written before that is found by the pass over all records (package
// backfill), which goes by a State of its own run alone. So no promise rests on how old the State
// is that a process goes by, nor on whether a database with a deposed primary answers with an older
// one: an older one has writes refused and pages of the pass begun again.
//
// What is left is someone who writes past the database's check. A record under a former key is
// opened by who has that key, whatever the State is, for only who had it can have made the record;
// and the promise is taken back, so that another run begins. What is plain is no proof: where
// all records are under keys it is refused, until an operator admits it.
//
// # Failure
//
// What cannot be decrypted is never passed on, and nothing is written over it: a record under a
// key that this process does not have is ErrKey, one that was changed or moved is ErrTampered,
// and so is a plain one where the State does not allow it. Both fail a client's call, a list too,
// for a page without the record would say that it is gone. A Namespace returns what is
// record.ErrUnreadable with its Err and the others as they are, so that it is parked and they are
// migrated.
//
// It does not own where keys come from (config), where the State is kept (identity), or the
// pass over all records (backfill, controller).
//
// It is not for users and may change with any version.
package sealed
