package protodoc_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

func ExampleMerge() {
	// A newer program has stored an owner, of which this one does not know.
	stored, _ := bson.Marshal(bson.D{{Key: "_id", Value: "e"}, {Key: "owner", Value: "ann"}, {Key: "name", Value: "PORT"}, {Key: "value", Value: "80"}})
	var env bbsv1.EnvVar
	if err := protodoc.Unmarshal(stored, &env); err != nil {
		fmt.Println(err)
		return
	}
	env.Value = "8080"
	doc, err := protodoc.Merge(stored, &env)
	fmt.Println(doc, err)
	// Output: {"_id": "e","owner": "ann","name": "PORT","value": "8080"} <nil>
}
