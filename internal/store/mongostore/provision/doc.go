// Package provision creates, describes, changes and drops collections of MongoDB and their indexes.
// A collection that has a fence is described as it was before.
//
// It is not for users and may change with any version.
package provision
