// Package edit reads and changes BSON documents without decoding them.
//
// An Editor opens a document as a Node: a list of elements that point into the document's bytes.
// Operations find fields by a Path, replace, append or remove elements, and Encode writes the
// result. Bytes that no operation touched are copied as they are. So the work depends on the fields
// that change, and little on the other fields of the document.
//
// Lists and maps have items. A Path through items contains ItemPart, and EachItem hands every item
// to an operation as a document of its own. After all operations, Complement copies the fields that
// only the target's document has. RestoreItems and RestoreOrder then give fields the order that
// they have there.
//
// A Refusal is the error for a document that an operation cannot accept. Its text names the field.
// An Editor reuses its memory for the next document. Two goroutines must not use one Editor.
//
// The package does not know operations, types of a lens, or keys.
package edit
