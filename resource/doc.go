// Package resource implements the standard methods of an API's resources over a store. It is for
// the handlers of a Go service (package dbcontroller). The service adds only its messages, its
// checks and its own methods.
//
// A Table holds the resources of one message type. Each resource is a record of one kind (a
// collection), and the name of the resource is the key of the record:
//
//	books := resource.New(store, resource.Config[*libraryv1.Book]{
//		Kind: "books", Pattern: "libraries/{library}/books/{book}", Check: checkBook,
//	})
//
// Create, Get, BatchGet, List, Search, Update, Delete and Watch take the requests of clients as they
// are. The fields of a request have the standard names (apiversion.Roles): parent, name, names, the resource,
// {resource}_id, filter, order_by, page_size, page_token, read_mask, update_mask and
// expected_revision. A search also has query. Change is for the service's own methods that change a resource. Insert is for
// resources that the service itself makes.
//
// NewHandler serves the standard methods of a service with its tables, and all other methods with
// the service's own handler. MountWatches keeps the streams of watches open during a switch, when
// another version of the service becomes active. MountImports does so for streams of clients that send
// resources. An Observer calls a function of the service with each change.
//
// # Guarantees
//
// A record is its message as package protodoc encodes it, with the name as the _id. Changes keep
// the fields of a record that this program does not know.
//
// A resource has a revision, which the service sets. It is random in a new resource and grows with
// each change. Each write compares it in the database. So no change is lost, even if the resource
// was deleted and created again. The package retries a change after a concurrent change, at most
// Attempts times. It does not retry a change for which the client expects a revision.
//
// Owner makes resources children of the resources of another table. A change of a child also
// changes the revision of its parent. A parent is deleted together with its children. Give a child
// table an Owner if another version of the API has the children as a list in the parent.
//
// Refer declares fields that name resources of the same service. A delete then refuses, deletes or
// changes the resources that name the deleted one, in one transaction. A new name changes the
// revision of the resource that it names, so a delete that has not seen it fails and reads again.
//
// A list is not a snapshot (listing.List). A watch subscribes before it lists, so it reads a change
// in between twice and never misses it. It sends the initial state, then a message that this is
// complete, then changes. It does not send a state that the client already has.
//
// Errors come from packages record, apiversion and listing. They name the field of the request, and
// never kinds or places, which an API does not show. apiversion.CodeError adds their codes. It
// keeps the cause, because package vrunner needs the cause to run a request again after a switch.
//
// # What this package does not own
//
// The package has no notion of versions, tokens or switches. A store of an adapted version
// (transform/adapt) works as well as a store of the stored version. The package does not check
// access.
//
// Begin to read at Config and Table, then write.go and watch.go.
package resource
