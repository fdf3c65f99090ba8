// Package verify compares a source namespace with its target through the transform:
// putting a group of the source into what the target holds must change nothing, and the
// target must hold nothing else.
//
// Source and target are read at different snapshots, so that a difference may only mean
// that a change has not arrived yet. Callers compare what differs again, at a later
// snapshot, until it settles; the engine does so continuously and Run does it on demand.
// Memory is bounded by a page, whatever the size of the data.
//
// It writes nothing, and does not decide what a lasting difference means.
package verify
