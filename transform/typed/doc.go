// Package typed makes transformers of Go types: both versions' structs with bson tags, or
// protobuf messages by way of a Codec, with both directions in one place.
//
// A Pair is for records that become one record each. It lists what changed: Rename, Convert, Split,
// OldOnly, NewOnly. A changed field costs one pair of functions. The example of Compile shows one.
//
// From it follow a transform.Spec for the engine, and a transform.Mapping for each
// direction, by which requests are expressed in the other version: names, paths, masks,
// literals of filters, order. A field that both types have at the same path with the same
// type needs no mention; one that only one type has must be mentioned, so that nothing is
// left out by mistake. The types are held against each other when the pair is compiled.
//
// A Group is for records of several kinds that become records of several kinds. Its
// functions take and return structs whose fields are the kinds, see Group.
//
// # Guarantees
//
// A Pair works on the encoded document: what no field names keeps its bytes and its
// place, whether the types know it or not. A value is converted there and back, and one
// that does not come back the same is an error; so is a record that has a field which
// only the other version has. Such a record is parked, never guessed at. What one version
// cannot hold survives in the other as the complement.
//
// A Group works on decoded records. Fields that its types do not know stay in a record
// that is there already; a field of type Rest takes them along into the other version, and
// KeepRest does so for all records of a group, those that are merged into one included.
//
// Functions of the user run apart: a panic, or a runtime.Goexit, concerns the group that
// it met alone. Only a stack overflow or want of memory ends the process.
//
// The package does not know how protobuf messages are laid out in documents.
package typed
