// Package refusal says for programs why a service did not do what a call asked for, where
// that has to do with a switch, with versions, with an outcome that nobody knows, or with what
// the database takes and can read, and why a controller did not do what an operator asked for,
// where the state of the deployment does not allow it: a google.rpc.ErrorInfo among the details of
// the error, whose domain is Domain and whose reason is one of Reasons. It is the same in Connect,
// gRPC and gRPC-Web, and in the JSON of a plain HTTP request. docs/errors.md has the table.
//
// A Reason decides the code, so that a reason never comes with two. What is refused below
// the handlers (a gate, a fence) is an error made by Because, which carries its reason up to
// where it becomes the answer: New.
//
// Texts are for people and may change; reasons, the names in their metadata and the domain
// do not. Metadata name versions and services, never records or values.
//
// The package does not decide what is refused, and errors of a service's own (a field that is
// wrong, a record that is not there) are not its business.
package refusal
