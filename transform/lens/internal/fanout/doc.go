// Package fanout ties a field of one record to records of another kind.
//
// A Fan is what fanOut and gather declare: the field, the kind of the children, and the form of
// their keys. Scatter makes the entries of the field into children, and Collect makes the children
// into the field; each is the inverse of the other. Both read the other records of the group from
// edit.Group, and need an Editor that has one.
//
// Every child can be checked against its parent. Its key follows from the parent's _id and from its
// own content, and a child that contradicts its key is an error of the parent's record. Entries take
// what only the target has from the target's children, matched by their keys or by the field that
// distinguishes them.
//
// The package does not parse lenses, and does not decide how groups are named.
package fanout
