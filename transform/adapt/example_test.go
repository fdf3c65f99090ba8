package adapt_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
)

// customer renames one field of the records of a kind.
func customer(kind, from, to string) transform.Func {
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

// A handler of v1 runs over the data of v2.
func Example() {
	side := func(kind string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
	}
	registry := transform.NewRegistry("shop.example.com")
	err := registry.Add("v1", "v2", transform.Spec{
		Name: "customers", Revision: "1", Old: side("customers"), New: side("clients"),
		Up: customer("clients", "mail", "email"), Down: customer("customers", "email", "mail"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	show, _ := registry.Direction("v2", "v1")
	keep, _ := registry.Direction("v1", "v2")

	ctx, db := context.Background(), memstore.New()
	token, err := db.Provision(ctx, record.KindSpec{Name: "clients"}, record.PhysicalName("clients", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	v2 := &namespace{client: db, tokens: record.Tokens{"clients": token}} // vrunner's View in a server
	v1, err := adapt.New(v2, show, keep, adapt.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "ann"}, {Key: "mail", Value: "ann@example.com"}})
	fmt.Println(v1.Write(ctx, []record.Mutation{{Kind: "customers", Key: record.StringKey("ann"), Doc: doc, Absent: true}}))
	stored, _ := v2.Get(ctx, "clients", "ann")
	fmt.Println(stored.Doc)
	shown, _ := v1.Get(ctx, "customers", "ann")
	fmt.Println(shown.Doc)
	// Output:
	// <nil>
	// {"_id": "ann","email": "ann@example.com"}
	// {"_id": "ann","mail": "ann@example.com"}
}
