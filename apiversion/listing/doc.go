// Package listing is what handlers of any version need to list, show and change parts of
// resources: filters, orders, page tokens, read and update masks, and List, which makes
// a page of all of them.
//
// Filters are in CEL syntax, a subset of it:
//
//	state == "ACTIVE" && labels.tier in ["web", "api"] && !has(owner.email)
//	created > timestamp("2026-01-01T00:00:00Z") || tags.contains("x")
//
// with field paths (dotted; entries of maps as labels.x or labels["x"]), == != < <= >
// >=, in, contains(), startsWith(), has(), && || !, and literals. A path is checked
// against the resource's descriptor when the filter is parsed. Where the meaning of CEL
// is that of a program and not of a search, it is that of a search:
//
//   - A comparison with something that is not there (an unset field with presence, a
//     field of an unset message, an absent entry) is false. != is the negation of ==.
//   - A path through a list matches if any item does; a list contains() an item.
//   - Enums are compared by the name of the value, and sort by it.
//   - A field whose name CEL reserves is this.namespace, this.package.
//
// A token carries the last name, the values by which the page was sorted, and a digest
// of the request that asked for it: with another request it is refused. It holds nothing
// of the store, so that it can be translated into the terms of another version.
//
// Errors are connect errors with code and, for bad requests, a google.rpc.BadRequest
// detail that names the field of the request.
//
// The package reads no database: it is given a function that does. It does not know that
// there are several versions.
package listing
