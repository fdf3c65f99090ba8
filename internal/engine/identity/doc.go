// Package identity prevents one deployment from using another's databases, and either side of a
// deployment from running with an outdated other side.
//
// Each database holds marks and claims (record.Marker). A mark names the database, the deployment
// and version that own a namespace in it, and the latest decision of a switch about it. A claim
// names the deployment and version that own a collection. The Deployment, in the coordination
// store, holds the identity of each namespace's database. Before a process reads changes, starts,
// or destroys anything, this package compares the two sides.
//
// # What it detects
//
//   - The wrong database for the Deployment: another cluster, another
//     database, or a collection that was recreated under the same name.
//   - One database under two names, in two entries of the configuration.
//   - Two deployments or two versions that want the same collection, or the same kind name in
//     one database. The first to claim it keeps it.
//   - A Deployment that is older than the databases: etcd was lost, emptied, or restored.
//   - A database that is older than the Deployment: it was restored.
//
// # Order of the marks
//
// The mark of a namespace holds the direction epoch, and whether its version was the current one.
// It also holds a copy of the Deployment (State), from which rebuild.go makes a lost one again.
// The direction epoch grows with each flip. Only the leading process writes marks, in this order:
//
//	before the flip    both marks: "from epoch N+1 on the target may be the current version"
//	the flip           in the coordination store
//	after the flip     both marks: epoch N+1, and which of the two is current
//	before an abort    the source's mark: "this attempt was aborted", without the "may be"
//
// So if a switch has an unknown end, the source's mark holds a "may be". At that point the source
// is fenced and sealed: it refuses every write, and the target holds all of its records. Continuing
// with the target therefore loses nothing, whether or not the flip happened.
//
// # Beats
//
// A beat is a counter that both a database and the coordination store hold. A database with the
// lower count was restored from a backup (Pulse).
//
// # What it does not own
//
// It does not protect records and does not fence writers. Tokens and guards do that, whatever a
// mark holds. A mark is evidence against a mistake, never a permission.
//
// Begin to read at Check, then Keeper, then Evidence.
//
// It is not for users and may change with any version.
package identity
