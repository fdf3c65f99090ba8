// Package apiversion serves one version of an API with the handlers of another version. After a
// flip, another version of the data is active, but clients still call the old API. The package
// answers them with the handlers of the new version, over the new data.
//
// # Vocabulary
//
//   - Old is the version that the client calls. New is the version that serves the call.
//   - Up converts from Old to New, Down from New to Old.
//   - A Resource declares one resource type in both versions. It has a Converter of messages and
//     a transform.Mapping of names, fields and values for each direction.
//   - A role is the meaning of a request field, such as name, filter or page token.
//
// # Where to begin
//
// Typed makes a Resource from two Go functions on generated messages, and maps the fields that
// both versions have. NewTable pairs the methods of two services: renamed, replaced or
// discontinued. NewHandler then serves the procedures of the old service, unary, server
// streaming and client streaming, over Connect, gRPC and gRPC-Web. It calls the new service's handler in process.
//
// Package transform/adapt is the other way to serve an old API: the old version's handlers run over
// the new data. Prefer it: it needs no table and refuses no request.
//
// Further parts of the package:
//
//   - ReadOnly refuses writes to a version that is not writable yet.
//   - An Observer sees every translation.
//   - Usage counts the callers of each version.
//   - Range answers calls to a version that is not served with the versions that are.
//   - Once runs an interceptor once for each client call, however many handlers the call passes.
//
// # Translation
//
// The handler translates names, lists of names and parents, resources, filters, orders, page tokens, update
// and read masks, responses, streamed messages and errors. It copies fields that have the same
// name and type in both requests.
//
// # Guarantees
//
// The handler never leaves out or approximates a value. A request that the other version cannot
// express fails with InvalidArgument, and the error names the field in the client's version. In a
// client's stream it ends the stream, also for the new handler, which gets no complete stream. A
// response that the client's version cannot express fails with DataLoss.
//
// A page token resumes at the same record in both versions. The inner handler sees the context
// values of the request, so a write gate that admitted the request also covers the inner
// request. NewTable checks the declarations.
//
// # Updates
//
// An update first reads the resource, if the new service has a method for that. The handler
// applies the client's edit to the whole resource, and the new update mask names only the
// edited fields. If the new service has no update mask, the update writes back all fields that
// it read. With an etag, that write is conditional, and the handler retries it after a
// concurrent change. Without an etag, it may overwrite a concurrent change.
//
// A method may be served by several requests (Method.Requests). Either all their writes take effect
// or none.
//
// The package does not access databases and does not take part in switches. It does not know
// which version is active.
package apiversion
