// Package blevesink is a full-text index in a folder on the local disk, by the library bleve. It is
// a sink.Sink, and it answers searches.
//
// The folder has one index of bleve, with one document for each record and one for each tombstone.
// A document has the words of the declared fields and of the name, and its entry: the guard and the
// digest. The state of the sink is in the index as well, and one batch of bleve writes both. So a
// killed process leaves either both or none.
//
// # Guarantees
//
// One process at a time has a folder open; Open refuses a second one with ErrInUse. The index is
// derived data. Open therefore replaces an index that it cannot read, and one of other fields, by an
// empty one, which the sink's Follower fills again. It deletes no folder with files of others.
//
// After a write that failed, the index refuses everything until it is opened again. A panic of the
// library in a call of this package is an error. The library recovers its own goroutines, which store
// and merge. After such a panic, a write may wait for ever.
//
// The index holds the texts of records in the clear. It has the file mode 0700, and nothing else
// protects it.
//
// # What this package does not own
//
// It does not follow records (package sink), and it does not know how far behind it is.
//
// Only programs that import this package link bleve. Services do so by package
// resource/localsearch.
//
// It is not for users and may change with any version.
package blevesink
