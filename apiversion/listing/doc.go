// Package listing implements the list, read and update conventions of resource APIs for handlers of
// any version: filters, orders, page tokens, read masks and update masks. List combines them into
// one page of results. Package resource uses it. Handlers without that package call it themselves.
// Begin to read at List.
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
//   - A comparison with an absent value is false. A value is absent if its field has presence and
//     is unset, if its message is unset, or if the map has no such entry. != is the negation of ==.
//   - A path through a list matches if any item matches. A list contains() an item.
//   - Enums compare and sort by the name of the value.
//   - A field whose name CEL reserves needs the prefix this, as in this.namespace and this.package.
//
// # Page tokens
//
// A page token holds the last record's name, that record's sort values, and a digest of the
// request. List refuses the token in any other request (ErrOtherRequest). The token holds no
// position in the store, so it can be translated for another version of the API.
//
// # Errors
//
// Errors of a request are Connect errors with a code. If the request is invalid, a
// google.rpc.BadRequest detail names the field.
//
// The package does not read a database. The caller passes a function that does (Source). The
// package does not know that an API has several versions.
package listing
