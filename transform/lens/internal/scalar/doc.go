// Package scalar converts single values between the types of a lens.
//
// A Type is a type that the operation convert names. An IDType is the type of a variable in a key.
// Values are the bytes of a BSON value without its type and name.
//
// Convert changes a value's type. It converts the result back, compares, and refuses a value that
// would not come back bit for bit. FromNumber and ToNumber do the same for a number, whose BSON
// type is its writer's choice: there, the same number must come back. IDType.Read returns the text
// of a variable's value, and IDType.AppendTo returns the value of such a text. Each value has
// exactly one text.
//
// Requests contain literals, which are Go values, instead of BSON. LiteralsOf maps a literal
// through a conversion, so that a comparison selects the same records in both versions.
//
// The package does not know fields, operations or keys.
package scalar
