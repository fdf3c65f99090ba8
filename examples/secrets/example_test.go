package secrets_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// The engine moves records with the lens that the middleware serves requests with.
func ExampleSpecs() {
	registry := transform.NewRegistry("secrets.example.com")
	if err := registry.Add(secrets.V1, secrets.V2, secrets.Specs()...); err != nil {
		fmt.Println(err)
		return
	}
	up, err := registry.Direction(secrets.V1, secrets.V2)
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(bson.D{
		{Key: "_id", Value: "projects/web/secrets/key"}, {Key: "expires_at", Value: int64(1800000000)}, {Key: "owner", Value: "payments/ada"},
	})
	key := record.StringKey("projects/web/secrets/key")
	id, _, _ := up.GroupOf(secrets.Kind, key)
	out, err := up.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{{Kind: secrets.Kind, Key: key, Doc: doc}}}, transform.Group{})
	if err != nil {
		fmt.Println(err)
		return
	}
	elements, err := out[0].Doc.Elements()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range elements {
		fmt.Println(e.Key(), e.Value())
	}
	// Output:
	// _id "projects/web/regions/us-west2/secrets/key"
	// expire_time {"$date":{"$numberLong":"1800000000000"}}
	// owner_team "payments"
	// owner_person "ada"
	// rotation_days {"$numberInt":"0"}
}
