// Package throttle limits bulk work: copying, data updates, and whole comparisons. Bulk workers
// call Pacer.Wait before each page. The Pacer blocks them according to the pace in the Deployment's
// record (a pause, a rate, a time of day). It also blocks them for the load of the databases.
//
// # Pressure
//
// The Pacer measures both databases about once a second while bulk work runs. Signs of pressure are
// a replication lag, queued operations, a cache full of unwritten pages, processors above the
// configured limit, and errors. Under pressure the Pacer halves the rate, down to a small
// remainder. Without pressure the rate grows in steps until no limit is left. All bulk work stops
// while more of it would make clients wait.
//
// # Guarantees
//
// A change of the pace applies to the next page. A database that cannot be measured stops bulk
// work, because its effect on clients is unknown.
//
// # What it does not own
//
// It does not limit the application of changes. Changes are applied under any pressure, or the
// source's history would expire before the checkpoint reaches it. It does not measure databases
// itself (record.Monitor).
//
// Begin to read at Pacer.Wait.
//
// It is not for users and may change with any version.
package throttle
