// Package memstore is the reference backend: record.Namespace and record.Client in
// memory, small enough to be read in one sitting, and the twin that the conformance
// suite is written against before any real database.
//
// A Cluster stands for a database cluster: one clock, one log of changes, any number of
// databases. A Store is one database of it. Stores that share a Cluster have comparable
// versions and positions; those of two clusters do not, which is how tests get a target
// whose clock is behind that of its source.
//
// # Guarantees
//
// All that package record promises, literally: every command compares its token (name
// and identity) with what is there; each commit is atomic and has a version of its own;
// the states of a record are kept for as many versions as Options.Lag asks for, so that
// a read at a snapshot is one; changes are delivered from a log, and waiters are woken
// by a channel, never by polling. Documents are kept byte for byte.
//
// Fixed-name kinds keep guards next to the documents, as a real backend's side
// collection does, and Foreign acts on them as the application would: without a token,
// under whatever name it knows.
//
// # What this package does not own
//
// Durability: a Store is gone with its process. Faults: package faultstore wraps a Store
// to inject them. It knows as much of indexes and validators as the suite needs: unique
// indexes over top-level fields, and validators of the form {field: {$exists: true}}.
//
// It is not for users and may change with any version.
package memstore
