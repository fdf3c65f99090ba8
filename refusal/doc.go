// Package refusal gives programs the reason for a refused call. A service adds a reason if the
// cause is a switch, an API version that is not active or not served, an unknown outcome, or a
// limit of the database. A controller adds one if the state of the deployment does not allow an
// operator's request. Handlers make such errors, and clients in Go read them.
//
// The reason is a google.rpc.ErrorInfo in the details of the error. Its domain is Domain, and its
// reason is one of Reasons. It is the same in Connect, gRPC and gRPC-Web, and in the JSON answer to
// a plain HTTP request. docs/errors.md has the table.
//
// # Guarantees
//
//   - Each reason has exactly one error code.
//   - Reasons, the names in their metadata, and the domain are stable. Texts are for people and may
//     change.
//   - Metadata names versions and services. It never contains records or values.
//
// # How to use it
//
// A handler returns the error of New. Code below the handlers, such as a write gate, returns the
// error of Because. That error carries its reason up to the handler, and In makes the answer from
// it. A client calls Of, and Reason.Again tells it whether to repeat the call.
//
// # What this package does not own
//
// The package does not decide which calls are refused. It does not cover a service's own errors,
// such as an invalid field or a missing record.
//
// # Where to begin
//
// Begin to read at Reason and New.
package refusal
