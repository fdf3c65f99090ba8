package edit

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Group holds the records of a group around the one that the program transforms. It belongs to one
// run.
type Group struct {
	IDs      [2]MainID       // ids of the record on the old and on the new side
	Children []record.Record // records of the source's group
	Have     []record.Record // records of the target's group
	Main     bson.Raw        // the target's version of the record itself; nil if it has none
	Out      []record.Record // the results: the record itself comes first
}

// MainID is the _id of the parent record on one side.
type MainID struct {
	Value bson.RawValue
	Key   record.Key
}
