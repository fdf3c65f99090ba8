package edit

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Group holds the other records of the group of the record that a program transforms. It belongs to
// one run. Children and Have are sorted by kind and then by key.
type Group struct {
	IDs      [2]MainID       // _ids of the record: 0 on the old side, 1 on the new side
	Children []record.Record // records of the source's group
	Have     []record.Record // records of the target's group
	Main     bson.Raw        // the target's version of the record itself; nil if it has none
	Out      []record.Record // the results; the record itself comes first
}

// MainID is the _id of the record on one side, and the key of that _id.
type MainID struct {
	Value bson.RawValue
	Key   record.Key
}
