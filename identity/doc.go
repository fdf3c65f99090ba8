// Package identity keeps a Deployment and the databases that it is about from being taken
// for others. Each database holds in its own marks (record.Marker) which one it is, whose
// its namespaces and collections are, and what was decided about them last; the Deployment
// holds in which database each namespace is. A process that is about to read changes, to start, or
// to do what cannot be undone has the two compared.
//
// # What is distinguished
//
//   - A database that is not the one that the Deployment means: another cluster, another
//     database, one collection made anew under the name of another.
//   - One database under two names, in two entries of the configuration.
//   - Two deployments, or two versions, that want one collection, or kinds of one name in one
//     database: a claim is made by the first that comes.
//   - A Deployment that is older than the databases: etcd was lost, emptied, or restored.
//   - A database that is older than the Deployment: it was restored.
//
// # What the marks hold when
//
// The mark of a namespace has the direction epoch, whether its version was the current one,
// and a copy of the Deployment (State) from which package recovery rebuilds it. They are
// written by the one process that leads, in this order:
//
//	before the flip    both marks: "from epoch N+1 on the target may be the current version"
//	the flip           in the coordination store
//	after it           both marks: epoch N+1, and which of them is current
//	before an abort    the source's mark: "this attempt was aborted", and no longer a "may
//	be" gives back anything
//
// So a switch whose end nobody knows is one of which the source says "may be". There the
// source is fenced and sealed and the target holds all of it, so that going on with the
// target loses nothing, whether or not the flip was made.
//
// # What it does not own
//
// Records and fences: those are the business of tokens and guards, which hold whatever a
// mark holds. A mark is evidence against a mistake, never a permission.
//
// It is not for users and may change with any version.
package identity
