// Package region lets a service in one region show records that other regions own.
//
// Each record has an owning region. Each region has a deployment, databases and an etcd of its own,
// and upgrades alone. A region keeps read-only copies of the records of the other regions, in its
// own database. Reads, lists and watches show them together with its own records. Writes to them are
// refused, or sent to their owner.
//
// A service declares a Kind for each kind of records with copies (dbcontroller.Version.Regions). The
// server does the rest, if its configuration has the section regions.
//
// # Vocabulary
//
// An owned record is one in the collection of its kind. A copy is in a collection of its own
// (CopiesKind), in the same namespace. A region owns the records in its collections; the field or
// the part of the key that a Kind declares only says which region that should be.
//
// # Guarantees
//
//   - A copy never overwrites an owned record, and a sync never migrates, compares, parks or rolls
//     back a copy: both live in different collections, and the copies are local to a namespace
//     (transform.Registry.DeclareLocal).
//   - If both exist under one name, reads and lists show the owned record.
//   - A copy lags behind its owner. It shows a state that the record had. After the owner is
//     unreachable for a while, copies stay as they are.
//   - A write that concerns a copy has no effect here. Its error has the reason refusal.NotOwner and
//     names the owner. A transaction of records of several regions is refused as a whole.
//   - A client changes the owner of a record only by a move, if its kind has Kind.Move: a change of the
//     field begins it, and servers do the rest (internal/engine/moves). A record that moves is
//     read-only (refusal.Moving), and at most one region accepts writes of it at any time.
//
// A list reads copies and owned records one after the other, so it is not a snapshot, like every
// list.
//
// # Limits
//
// Copies have no index for filters and orders, and no index for search: filters read them without
// one, and a search finds owned records only. Tables with Parts or an Owner cannot have copies.
//
// # What this package does not own
//
// The package neither makes copies nor reaches other regions; the server does
// (internal/engine/copies and moves). It knows one version only: a request of an older API is translated or
// adapted first, and meets this store then.
//
// Begin to read at Kind and Over.
package region
