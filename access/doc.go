// Package access decides who may make which call: it proves who calls (an Authenticator),
// gives the proven identity its roles (a Policy), and compares them with what the call
// needs (a Table). A Guard does the three in front of an HTTP handler, and an Interceptor
// once more in front of each procedure, so that a handler that somebody mounts without a
// guard answers nobody.
//
// Vocabulary. An identity is a name and how it was proven; the name begins with the kind
// of proof, so that nobody can choose a token's name that reads as a certificate's. A role
// is what it may do: application, viewer, operator. A row of the table is a path and the
// least role that may call it.
//
// Guarantees. Deny by default: a path without a row is refused, and so is an identity
// without a role. Nothing of a request's body is read before its caller is known. Tokens
// are compared in constant time, and are neither kept nor logged. What was refused says
// which role is wanted, or how to prove who one is, and no more. Files (tokens, keys,
// certificates) are read again when they change; one that cannot be read leaves what was
// read before, and says so.
//
// It does not open listeners or TLS (access/door), know what a call does, or protect etcd
// and the databases: anyone who reaches those needs no call.
//
// It is not for users and may change with any version.
package access
