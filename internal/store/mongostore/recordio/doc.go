// Package recordio reads and writes records in MongoDB: scans, reads at a snapshot, guarded batches,
// loads and swaps. Apply (apply.go) writes whole groups in transactions; Load inserts what is
// missing.
//
// It is not for users and may change with any version.
package recordio
