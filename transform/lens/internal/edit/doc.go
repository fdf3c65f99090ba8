// Package edit reads and changes BSON documents in place of decoding them.
//
// An Editor opens a document as a Node: a list of elements that point into the document's bytes.
// Operations find fields by a Path, replace, append or remove elements, and Encode writes the
// result. Bytes that no operation touched are copied as they are. So a document with 100 fields
// costs little more than the fields that change.
//
// Lists and maps have items. A Path through items contains ItemPart, and EachItem hands every item
// to an operation as a document of its own. After all operations, Complement, RestoreItems and
// RestoreOrder take from the target's document what the source does not know: fields that only the
// target has, and the order of fields.
//
// A Refusal is the error of a document that an operation cannot accept. Its text names the field.
// An Editor keeps its memory for the next document and must not be used by two goroutines.
//
// The package does not know operations, types of a lens, or keys.
package edit
