package transform_test

import (
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Orders of one customer become one record. Which customer an order belongs to is given by
// a field, and may change; the engine finds the customers before and after by lineage.
func ExampleGroupedKind_content() {
	type order struct {
		ID       int    `bson:"_id"`
		Customer string `bson:"customer"`
		Total    int    `bson:"total"`
	}
	read := func(r record.Record) (o order, err error) {
		err = bson.Unmarshal(r.Doc, &o)
		return o, err
	}
	reg := transform.NewRegistry("shop")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "customers", Revision: "1", Reversal: transform.ReversalNone, // as Down declares
		Old: transform.Side{Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: "orders"},
			Content: func(r record.Record) (string, error) {
				o, err := read(r)
				return string(record.StringKey(o.Customer)), err // the key of the record that it becomes part of
			},
		}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "customers"}}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			sum := 0
			for _, r := range src.Records {
				o, err := read(r)
				if err != nil {
					return nil, err
				}
				sum += o.Total
			}
			name, _ := record.Key(src.Name).Name()
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "total", Value: sum}})
			return []record.Record{{Kind: "customers", Key: record.Key(src.Name), Doc: doc}}, err
		},
		Down: func(transform.Group, transform.Group) ([]record.Record, error) {
			return nil, fmt.Errorf("orders cannot be recovered from their sum")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	up, err := reg.Direction("v1", "v2")
	if err != nil {
		log.Fatal(err)
	}
	var ann transform.Group
	for id, total := range []int{5, 7} {
		doc, err := bson.Marshal(order{ID: id, Customer: "ann", Total: total})
		if err != nil {
			log.Fatal(err)
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			log.Fatal(err)
		}
		r := record.Record{Kind: "orders", Key: key, Doc: doc}
		if ann.Name, err = up.ContentOf(r); err != nil {
			log.Fatal(err)
		}
		ann.Records = append(ann.Records, r)
	}
	out, err := up.Transform(transform.GroupID{Name: ann.Name}, ann, transform.Group{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transform.ShowGroup(ann.Name), out[0].Doc)
	for _, k := range up.TargetKinds() {
		fmt.Println(k.Name)
	}
	// Output:
	// ann {"_id": "ann","total": {"$numberInt":"12"}}
	// dbc_lineage.customers.v1-v2
	// customers
}
