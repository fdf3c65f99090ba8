// Package proxy stands between an application and its MongoDB clusters. The application connects to it
// as to a mongos and keeps its names for ever. When a deployment switches to another version, the proxy
// holds the application's writes, and then makes them at the new place.
//
// A proxy is an application of the deployment (appclient) on behalf of all its clients. It repeats a
// statement only if a fence refused it as a whole. If a statement may have happened in part, or may be
// left behind by a switch, the client gets an error that no driver repeats.
//
// # What a client sees
//
//   - hello answers as a router, so drivers use sessions, transactions and retryable writes.
//   - A transaction stays at one place. One that is open when a switch holds writes may end for a
//     moment; then it is aborted with TransientTransactionError, which drivers repeat.
//   - A cursor stays at its server. Before the data moves, the proxy reads its rest, up to a bound. A longer
//     query by _id goes on at the next place, and any other one fails.
//   - A large reply to a getMore goes to the client while it arrives. If the server breaks meanwhile, the
//     connection of the client ends.
//   - Collections that no deployment names are in the cluster Config.Upstream and do not move.
package proxy
