// Package resource keeps the resources of an API in a store: what handlers of any service
// do alike, so that a service writes its messages, its checks and the methods that are its
// own, and nothing else.
//
// A Table is the resources of one message type, each a record of one kind under its name:
//
//	books := resource.New(store, resource.Config[*libraryv1.Book]{
//		Kind: "books", Pattern: "libraries/{library}/books/{book}", Check: checkBook,
//	})
//
// Create, Get, List, Update, Delete and Watch take the requests as clients send them, whose
// fields have the usual names (apiversion.Roles): parent, name, the resource, {resource}_id,
// filter, order_by, page_size, page_token, read_mask, update_mask, and expected_revision.
// Change is for methods of the service's own that change a resource, Insert for what it makes
// without a request. NewHandler serves the
// standard methods of a service by its tables, and the others by its own handler;
// MountWatches keeps the streams of watches open over a switch.
//
// # Guarantees
//
// A record is its message as protodoc writes it, with the name as the _id. Fields of a
// record that this program does not know stay, whatever is changed.
//
// A resource has a revision, which the service sets: it is drawn at random when the resource
// is made, grows with each change, and is compared in the database. So no change is lost,
// also not over a delete and a create in between. A change is made again, at most Attempts
// times, when others change the resource meanwhile, unless the client expects a revision.
//
// Owner makes resources children of those of another table. A change of a child changes the
// revision of its parent too, and a parent is deleted together with its children. Give a child
// table an Owner where another version of the API has the children as a list in the parent.
//
// A list is no snapshot (listing.List). A watch subscribes before it lists: what changes
// meanwhile is read a second time, never left out. It sends the initial state, then that this
// is complete, then what changes, and nothing that the client has already.
//
// Errors are those of record, apiversion and listing, about the name or the field of the
// request, without kinds or places, which no API has; apiversion.CodeError gives them their
// codes and keeps their cause, by which vrunner runs a request again after a switch.
//
// The package does not know versions, tokens or switches: a store of an adapted version
// (transform/adapt) serves as well as one of the stored version. It does not decide who may
// do what.
package resource
