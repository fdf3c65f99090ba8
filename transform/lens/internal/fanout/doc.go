// Package fanout connects a field of one record with records of another kind, the record's
// children.
//
// A Fan is the declaration of a fanOut or gather: the field, the kind of the children, and the form
// of their keys. Scatter turns the entries of the field into children. Collect turns the children
// into the field. Each is the inverse of the other. Both read the other records of the group from
// the Editor's edit.Group. Without a Group they return an error.
//
// Every child can be checked against its parent, because its key follows from the parent's _id and
// from its own content. A child that contradicts its key is an error of the parent's record. Some
// fields exist only in the target. The package takes them from the target's children or entries,
// which it matches by their keys or by the field that distinguishes them.
//
// The package does not parse lenses, and does not decide how groups are named.
package fanout
