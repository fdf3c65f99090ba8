// Package mongostore implements the record contract on MongoDB. A namespace is one database, and a
// kind is one collection of it.
//
// A managed kind belongs to a service that uses this library. Its documents carry guards, and its
// collection changes its name with each epoch. A fixed-name kind belongs to an application that
// reads and writes MongoDB directly. A guard is the epoch and version of the last applied write. A
// token is a collection's name and UUID. A fence is an operation after which an older token can no
// longer write. A mark is a document in the collection dbc_marks.
//
// # Guarantees
//
//   - Every data command carries the collection UUID of its token, also in transactions. After a
//     rename, each earlier token fails with error 361, which is record.ErrFenced here.
//   - Reads are majority-committed snapshots. Scan walks the index of _id with bounds and so
//     returns ids of all types. Read takes several kinds at one cluster time. The Version of a
//     record is that cluster time.
//   - Apply reads the guards of a batch and writes the newer groups in one majority transaction. It
//     isolates a group that cannot be stored by halving the batch, and answers that group on its
//     own.
//   - Watch follows one change stream of the database, with keys only. An event that an engine
//     cannot follow (a drop, a foreign rename) ends the stream with record.ErrBroken.
//
// # Where guards are
//
// Documents of managed kinds end with the element `_dbc: {g: <24 bytes>, x: true}`. Only a
// tombstone has x, and it has no other field but _id. This package adds and strips the element
// without decoding the document. A g of 12 bytes is not a guard. A client writes it when it checks
// a record without changing it (record.Mutation), so that the check conflicts with concurrent
// writes.
//
// Documents of fixed-name kinds stay as they are, byte for byte. Their guards are documents {_id,
// g, x} in the side collection GuardsName(kind), written in the same transactions. The side
// collection also has the marks that have ended for appliers (record.Token.Mark).
//
// # Indexes
//
// An index exists if listIndexes shows it without a build in progress. Whether it is the declared
// index is the server's answer to createIndexes, which then does nothing. Commands that build or
// change indexes also carry the collection UUID. Otherwise a late command would create a collection
// under a name that a fence took away.
//
// Two indexes that exist before the copy make it take 1.7 times as long as building them afterwards
// (docs/microbenchmarks.md). Provision and BuildIndexes therefore build only the indexes that they
// are given, and callers choose when. A TTL index is stopped by setting it to 2147483647 seconds,
// with a majority.
//
// # What it does not own
//
// The Deployment decides which token is current. Package transform gives documents their meaning.
// Package syncer chooses the size of batches and the number of workers. This package never renames,
// indexes or drops a source on its own: callers ask for provisioning and fencing.
//
// # Where to begin
//
// Namespace in store.go is the entry point. Its parts are packages of their own, from the bottom up:
// wire (the layout of commands and documents), conn (the connection that all parts share), fences,
// then provision (collections and indexes), recordio (records) and changes (streams), and client,
// which serves services. Programs import this package alone.
//
// It is not for users and may change with any version.
package mongostore
