package transform_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

func ExampleRegistry() {
	rename := func(kind, from, to string) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil // the record was deleted
			}
			var d bson.D
			if err := bson.Unmarshal(src.Records[0].Doc, &d); err != nil {
				return nil, err
			}
			for i := range d {
				if d[i].Key == from {
					d[i].Key = to
				}
			}
			doc, err := bson.Marshal(d)
			return []record.Record{{Kind: kind, Key: src.Records[0].Key, Doc: doc}}, err
		}
	}
	side := func(kind string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
	}
	registry := transform.NewRegistry("shop.example.com")
	err := registry.Add("v1", "v2", transform.Spec{
		Name: "customers", Revision: "1", Old: side("customers"), New: side("clients"),
		Up: rename("clients", "mail", "email"), Down: rename("customers", "email", "mail"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction("v1", "v2")
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "ann"}, {Key: "mail", Value: "ann@example.com"}})
	key := record.StringKey("ann")
	id, _, _ := up.GroupOf("customers", key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: "customers", Key: key, Doc: doc}}}, transform.Group{})
	fmt.Println(out[0].Kind, out[0].Doc, err)
	// Output: clients {"_id": "ann","email": "ann@example.com"} <nil>
}
