// Package typed makes transformers from Go types. A transformer turns records of one API version
// into records of the next version, and back. The types are structs with bson tags, or protobuf
// messages with a Codec. Both directions are declared in one place.
//
// A kind is a collection, and a record is a document in it. A group is a set of records that
// transform together. Declare a transformer in one of two forms:
//
//   - A Pair is for records that become one record each. It lists the fields that changed: Rename,
//     Convert, Monotone, Split, Join, OldOnly, NewOnly. A converted field needs one pair of
//     functions. The example of Compile shows one.
//   - A Group is for records of several kinds that become records of several kinds. Its functions
//     take and return structs whose fields are the kinds.
//
// Compile turns a Pair into a transform.Spec for the engine and a transform.Mapping for each
// direction. A Mapping translates requests to the other version: names, paths, masks, literals of
// filters, and order. A field that both types have at the same path with the same type needs no
// mention. Compile refuses a pair that leaves out any other field, so that none is forgotten. The
// method Spec of a Group makes its transform.Spec. A Group has no Mapping.
//
// # Guarantees
//
// A Pair works on the encoded document. Fields that no rule names keep their bytes and their place,
// even if the types do not know them. Two cases are errors: a value that does not come back the
// same from the other version, and a field that only the other version has. The engine parks such a
// record: it sets the record aside with the error, and the record blocks the switch until it is
// fixed or waived. Data that one version cannot represent survives in the other version's record.
// This data is called the complement.
//
// A Group works on decoded records. Fields that its types do not know stay in an existing record of
// the target. If the functions copy a field of type Rest, it carries them to the other version.
// KeepRest does so for all records of a group, even if several of them become one record.
//
// User functions run on a goroutine of their own. A panic or a runtime.Goexit is an error of the
// one group. A stack overflow and exhausted memory still end the process.
//
// # What this package does not own
//
// The package does not know the layout of protobuf messages in documents: package
// apiversion/protodoc has a Codec for them. The registry in package transform chains the
// transformers of several versions.
//
// # Where to begin
//
// Read Pair and Compile in pair.go, and Group in group.go. way.go and edit.go run a Pair on one
// record.
package typed
