// Package localmongo provides a real MongoDB for tests, the demo and benchmarks: it finds one or
// starts one. Begin to read at Start.
//
// # Where it looks
//
// It tries these places in order. If none serves, its error lists them all:
//
//  1. the connection string in DBCONTROLLER_TEST_MONGODB, the only environment
//     variable that selects a server;
//  2. mongod on the PATH;
//  3. the server that scripts/fetch-mongodb left in the user's cache folder;
//  4. the official image, through Docker and testcontainers-go (package localdocker).
//
// Some options need control over the server: several nodes, authentication, a standalone, a sharded
// cluster, kill and restart. They skip the connection string, and those beyond one plain node also
// skip Docker. A sharded cluster needs mongos next to mongod. A connection string that is set but
// unusable is an error at once. To test silently against another server would be worse.
//
// # Guarantees
//
// A server started here is a replica set with a writable primary, unless the caller asks for a
// standalone or a sharded cluster. All other members are up and recent enough to vote. A sharded
// cluster consists of such sets behind one mongos. The nodes listen on 127.0.0.1 only, keep
// mongod's defaults for journal and durability, and die with the process that started them, even if
// that is killed. The data are in a temporary folder that Stop removes: in memory if there is
// enough (Options.Dir). A later Start removes the folders of killed processes.
//
// # What it does not own
//
// It never stops or configures a server reached by a connection string. Databases in the server
// belong to the caller. Package mongotest has the helpers for tests: clean-up, and one server for
// all tests of a binary. This package also serves programs.
//
// It is not for users and may change with any version.
package localmongo
