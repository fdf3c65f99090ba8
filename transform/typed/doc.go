// Package typed makes transformers from Go types. A transformer turns records of one API version
// into records of the next version, and back. The types are structs with bson tags, or protobuf
// messages with a Codec. Both directions are declared in one place.
//
// A kind is a collection, and a record is a document in it. A group is a set of records that
// transform together. A Group decodes the records of a group, calls a function of yours, and
// encodes its result. The functions take and return structs whose fields are the kinds. If each
// record stays one record and only fields change, a lens is shorter (package transform/lens). The
// hooks of a lens are Go functions for changes that no operation can express.
//
// # Guarantees
//
// Fields that the types do not know stay in an existing record of the target. If the functions copy
// a field of type Rest, it carries them to the other version. KeepRest does so for all records of a
// group, even if several of them become one record. Data that one version cannot represent survives
// in the other version's record: this data is called the complement.
//
// The engine converts each result back before it stores the result. A group that does not come back
// the same is an error, and the engine parks it: it sets the records aside with the error, and they
// block the switch until they are fixed or waived.
//
// User functions run on a goroutine of their own. A panic or a runtime.Goexit is an error of the
// one group. A stack overflow and exhausted memory still end the process.
//
// # What this package does not own
//
// The package does not know the layout of protobuf messages in documents: package
// apiversion/protodoc has a Codec for them. The registry in package transform chains the
// transformers of several versions. A Group does not translate requests.
//
// # Where to begin
//
// Declare a Group, and pass the result of its Spec to dbcontroller.Version.Transformers or to
// transform.Registry.Add. docs/transformers.md has examples.
//
// To read the code, begin with Group in group.go. side.go reads its structs, and member.go decodes
// and encodes records.
package typed
