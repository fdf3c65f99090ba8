// Package access decides which caller may make which call. An Authenticator proves the caller's
// identity. A Policy gives the identity its roles. A Table holds the role that each path needs. A
// Guard applies all three in front of an HTTP handler. An Interceptor checks again in front of each
// procedure, so a handler that is mounted without a guard refuses every call.
//
// # Vocabulary
//
// An identity is a name and the way it was proven. The name begins with the kind of proof, so no
// token can have a name that reads like a certificate's. A role is a set of permissions:
// application, viewer, or operator. A row of the table holds a path and the least role that may
// call it.
//
// # Guarantees
//
// Access is denied by default: a path without a row is refused, and so is an identity without a
// role. The Guard knows the caller before any part of the request's body is read. Tokens are
// compared in constant time, and are neither kept nor logged. A refusal names the needed role or
// the accepted proofs, and nothing else. Token, key and certificate files are read again after each
// change. If a file cannot be read, its last content stays in force and a warning is logged.
//
// # What it does not own
//
// It does not open listeners (internal/access/door) and does not know the effect of a call. It does not
// protect etcd and the databases: a program that reaches those needs no call.
//
// Begin to read at Guard.Handler.
//
// It is not for users and may change with any version.
package access
