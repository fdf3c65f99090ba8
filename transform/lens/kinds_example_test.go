package lens_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// One record of the old version becomes one under another name and two of a kind of
// their own, and comes back.
func ExampleLens_Spec() {
	l, err := lens.Parse("orders.yaml", []byte(`
lens: 1
key:
  from: orders/{order}
  to: regions/{region}/orders/{order}
  with: {region: us-west2}
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/lines/{id}", id: sku, order: position}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := l.Spec("orders", "orders", lens.Managed())
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "orders/7"}, {Key: "lines", Value: bson.A{bson.D{{Key: "sku", Value: "nut"}}, bson.D{{Key: "sku", Value: "bolt"}}}}})
	old := transform.Group{Records: []record.Record{{Kind: "orders", Key: record.StringKey("orders/7"), Doc: doc}}}
	now, err := spec.Up(old, transform.Group{})
	for _, r := range now {
		fmt.Println(r.Kind, r.Doc, err)
	}
	transform.SortRecords(now)
	back, err := spec.Down(transform.Group{Records: now}, transform.Group{})
	fmt.Println(back[0].Kind, back[0].Doc, err)
	// Output:
	// orders {"_id": "regions/us-west2/orders/7"} <nil>
	// lines {"_id": "regions/us-west2/orders/7/lines/nut","position": {"$numberInt":"0"},"sku": "nut"} <nil>
	// lines {"_id": "regions/us-west2/orders/7/lines/bolt","position": {"$numberInt":"1"},"sku": "bolt"} <nil>
	// orders {"_id": "orders/7","lines": [{"sku": "nut"},{"sku": "bolt"}]} <nil>
}

func ExampleParsePattern() {
	p, err := lens.ParsePattern("projects/{project}/secrets/{secret}")
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := p.Match("projects/blue/secrets/token")
	fmt.Println(p.Variables(), values, err)
	_, err = p.Match("projects/blue")
	fmt.Println(err)
	// Output:
	// [project secret] [blue token] <nil>
	// "projects/blue" is not of the form projects/{project}/secrets/{secret}: the name does not match
}
