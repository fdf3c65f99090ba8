// Package mongostore serves the record contract from MongoDB: a namespace is one
// database, a kind one collection of it.
//
// # Guarantees
//
//   - Every data command carries the collection UUID of its token, in transactions
//     as well, so that after a rename each earlier token fails with error 361,
//     which is record.ErrFenced here.
//   - Reads are majority-committed snapshots. Scan walks the index of _id with
//     bounds, so that ids of all types are met; Read takes several kinds at one
//     cluster time. The Version of a record is that cluster time.
//   - Apply reads the guards of a batch and writes what is newer in one majority
//     transaction. A group that cannot be stored is isolated by halving the batch
//     and answered on its own.
//   - Watch follows one database stream of keys only. Anything that an engine
//     cannot follow (a drop, a foreign rename) ends it with record.ErrBroken.
//
// # Where guards are
//
// Documents of managed kinds end with the element `_dbc: {g: <24 bytes>, x: true}`
// (x for a tombstone, which has nothing else but its _id); this package adds and
// strips it without decoding the document. A g of 12 bytes is no guard: it makes a
// client's check (record.Mutation) a write that meets concurrent ones. Fixed-name kinds stay byte-clean: their
// guards are in the side collection GuardsName(kind), documents {_id, g, x}, written
// in the same transactions.
//
// # Indexes
//
// What is there is what listIndexes shows without a build in progress; whether it is what
// was declared is the server's answer to createIndexes, which is a no-op then. Commands that
// build or change indexes carry the collection UUID as well: otherwise one that was sent
// late would make a collection under the name that a fence took away. An index that is there
// before the records makes a copy of two indexes take 1.7 times as long as one that is built
// after them (docs/microbenchmarks.md), so Provision and BuildIndexes build what they are given,
// and callers choose when. TTL indexes are stopped by 2147483647 seconds, with a majority.
//
// # What it does not own
//
// Which token is current (the Deployment), what documents mean (transform), and the
// size of batches and number of workers (syncer). It never renames, indexes or drops
// a source on its own; provisioning and fencing happen only as they are called for.
//
// It is not for users and may change with any version.
package mongostore
