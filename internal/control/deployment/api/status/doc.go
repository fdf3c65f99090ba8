// Package status describes the state of a deployment as 'get' and 'watch' show it: the record, the
// progress of shards, the reasons that keep a switch waiting, and whether a rollback is possible. It
// reads nothing and changes nothing; package deployment reads the state, and package api answers calls.
//
// Begin to read at Of. Location has the same for applications: where their data is.
//
// It is not for users and may change with any version.
package status
