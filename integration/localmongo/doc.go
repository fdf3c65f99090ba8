// Package localmongo gets a real MongoDB for tests, the demo and benchmarks:
// it finds one, or starts one.
//
// # Where it looks
//
// In this order, and it says so when none can be had:
//
//  1. the connection string in DBCONTROLLER_TEST_MONGODB, the only environment
//     variable that is read for this;
//  2. mongod on the PATH;
//  3. the server that scripts/fetch-mongodb left in the user's cache folder;
//  4. the official image, through Docker.
//
// Options that need control over the server (several nodes, authentication, a
// standalone, a sharded cluster, kill and restart) skip the connection string, and
// those beyond one plain node skip Docker too. A sharded cluster needs mongos beside
// mongod. A connection string that is set but unusable is
// an error at once: quietly testing against another server would be worse.
//
// # What it guarantees
//
// A server started here is a replica set (unless a standalone or a sharded cluster
// is asked for) with a writable primary, and every other member is up and caught up
// enough to vote. A sharded cluster is one of such sets behind one mongos. Its nodes listen on 127.0.0.1 only, keep mongod's defaults for journal
// and durability, and die with the process that started them, even when that
// is killed. Data lies in a temporary folder that Stop removes, in memory where there is
// room (Options.Dir); folders that a killed process left behind are removed by a later
// Start.
//
// # What it does not own
//
// A server reached by a connection string is never stopped or configured.
// Databases inside the server belong to the caller. Test plumbing (cleanup, one
// server for all tests of a binary) is package mongotest; this package serves
// programs as well.
//
// It is not for users and may change with any version.
package localmongo
