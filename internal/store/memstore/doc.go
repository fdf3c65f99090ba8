// Package memstore is the reference backend: record.Namespace and record.Client in memory. It is
// short enough to read as a whole. The conformance suite is written against it before any real
// database.
//
// A Cluster represents a database cluster: one clock, one log of changes and any number of
// databases. A Store is one database of it. Stores of one Cluster have comparable versions and
// positions. Stores of two clusters do not, so tests can use a target with a clock behind its
// source's.
//
// # Guarantees
//
// A Store keeps all promises of package record. Every command compares its token (the name and
// identity of a collection) with the present collection. Each commit is atomic and has a version of
// its own. The Store keeps old states of a record for as many versions as Options.Lag demands, so a
// read at a snapshot is exact. It delivers changes from a log, and wakes waiting readers through a
// channel, never by polling. Documents stay the same byte for byte.
//
// For fixed-name kinds, which applications use directly, guards are stored next to the documents,
// like in a real backend's side collection. A guard is the source version that a record was written
// from. Foreign acts on such kinds like the application: without a token, under a name that it
// knows.
//
// # What this package does not own
//
// It has no durability: a Store ends with its process. Package faultstore wraps a Store to inject
// faults. Indexes and validators are limited to the needs of the suite: unique indexes over
// top-level fields, and validators of the form {field: {$exists: true}}.
//
// Begin to read in cluster.go, then collection.go and txn.go.
//
// It is not for users and may change with any version.
package memstore
