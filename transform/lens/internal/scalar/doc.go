// Package scalar converts single values between the types of a lens.
//
// A Type is the type that convert names, and an IDType the type of a variable in a key. Convert
// changes a value's type and refuses every value that would not come back bit for bit: it converts
// the result back and compares. FromNumber and ToNumber do the same for numbers of any type, whose
// type is their writer's choice. IDType.Read and AppendTo carry the value of a variable as a text
// that belongs to that value alone.
//
// Requests contain literals instead of BSON. LiteralsOf maps a literal through a conversion, so that
// a comparison selects the same records in both versions.
//
// The package does not know fields, operations or keys.
package scalar
