// Package refusal gives programs the reason for a refused call. A service adds a reason if a
// switch, an API version, an unknown outcome, or a limit of the database is the cause. A controller
// adds one if the state of the deployment does not allow an operator's request.
//
// The reason is a google.rpc.ErrorInfo in the details of the error. Its domain is Domain, and its
// reason is one of Reasons. It is the same in Connect, gRPC and gRPC-Web, and in the JSON of a
// plain HTTP request. docs/errors.md has the table.
//
// # Guarantees
//
// A Reason determines the error code, so each reason has exactly one code. Code below the handlers,
// such as a gate or a fence, returns an error of Because. That error carries its reason up to the
// handler, and In makes the answer from it.
//
// Texts are for people and may change. Reasons, the names in their metadata, and the domain are
// stable. Metadata names versions and services, and never contains records or values.
//
// # What it does not own
//
// The package does not decide which calls are refused. It does not cover a service's own errors,
// such as an invalid field or a missing record.
//
// Begin to read at Reason and New.
package refusal
