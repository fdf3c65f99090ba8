package lens

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// group holds the records of a group around the one that the program transforms. It belongs to one
// run.
type group struct {
	ids      [2]mainID       // ids of the record on the old and on the new side
	children []record.Record // records of the source's group
	have     []record.Record // records of the target's group
	main     bson.Raw        // the target's version of the record itself; nil if it has none
	out      []record.Record // the results: the record itself comes first
}

// mainID is the _id of the parent record on one side.
type mainID struct {
	value bson.RawValue
	key   record.Key
}
