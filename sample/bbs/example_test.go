package bbs_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
	"dbcontroller/sample/bbs"
	"dbcontroller/transform"
)

func ExampleRegister() {
	registry := transform.NewRegistry(bbs.Service)
	if err := bbs.Register(registry); err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction(bbs.V1, bbs.V2)
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "web"}, {Key: "instances", Value: 2}, {Key: "definition", Value: bson.D{{Key: "rootfs", Value: "jammy"}}}})
	key := record.StringKey("web")
	id, _, _ := up.GroupOf(bbs.KindDesiredLRPs, key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: bbs.KindDesiredLRPs, Key: key, Doc: doc}}}, transform.Group{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range out {
		fmt.Println(r.Kind, r.Doc)
	}
	// Output:
	// definitions {"_id": "web/web","process_guid": "web","definition_id": "web","definition": {"rootfs": "jammy"}}
	// lrp_deployments {"_id": "web","instances": {"$numberInt":"2"},"active_definition_id": "web","healthy_definition_id": "web"}
}
