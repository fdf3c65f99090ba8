// Package wire has the layout of MongoDB's commands, replies and documents: raw commands, batches of
// cursors, and the guard at the end of a document. It sends nothing.
//
// It is not for users and may change with any version.
package wire
