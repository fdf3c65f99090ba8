// Package listing implements the list, read and update conventions of resource APIs for handlers
// of any version: filters, orders, page tokens, read masks and update masks. List combines them
// into one page of results. Begin to read there.
//
// # Filters
//
// Filters use a subset of CEL syntax:
//
//	state == "ACTIVE" && labels.tier in ["web", "api"] && !has(owner.email)
//	created > timestamp("2026-01-01T00:00:00Z") || tags.contains("x")
//
// The subset has field paths (dotted; map entries as labels.x or labels["x"]), == != < <= > >=,
// in, contains(), startsWith(), has(), && || !, and literals. The parser checks each path against
// the resource's descriptor. A few rules differ from CEL, because a filter searches records and
// does not run a program:
//
//   - A comparison with an absent value is false. Absent are an unset field with presence, a field
//     of an unset message, and a map entry that does not exist. != is the negation of ==.
//   - A path through a list matches if any item matches. A list contains() an item.
//   - Enums compare and sort by the name of the value.
//   - A field whose name CEL reserves is written this.namespace, this.package.
//
// # Page tokens
//
// A page token holds the last record's name, the values by which the page was sorted, and a digest
// of the request. List refuses it with any other request. The token holds no position of the
// store, so another version of the API can translate it.
//
// # Errors
//
// Errors of a request are Connect errors with a code. If the request is invalid, a
// google.rpc.BadRequest detail names the field.
//
// The package does not read a database. The caller passes a function that does (Source). The
// package does not know that an API has several versions.
package listing
