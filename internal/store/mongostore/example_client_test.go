package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// A service writes and reads a managed kind, and learns of a fence by ErrFenced.
func ExampleClient() {
	ctx := context.Background()
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: "mongodb://localhost:27017/?replicaSet=rs0", Database: "bbs"})
	if err != nil {
		log.Fatal(err)
	}
	defer ns.Close(ctx)
	kind := record.KindSpec{Name: "lrps"}
	tok, err := ns.Provision(ctx, kind, record.PhysicalName(kind.Name, 1))
	if err != nil {
		log.Fatal(err)
	}
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "guid-1"}, {Key: "instances", Value: 3}})
	if err != nil {
		log.Fatal(err)
	}
	client := ns.Client()
	err = client.Write(ctx, record.Tokens{kind.Name: tok}, []record.Mutation{
		{Kind: kind.Name, Key: record.StringKey("guid-1"), Doc: doc, Absent: true},
	})
	switch {
	case errors.Is(err, record.ErrFenced):
		fmt.Println("the kind has moved: ask the Deployment for its token")
	case errors.Is(err, record.ErrExists):
		fmt.Println("there is one already")
	case err != nil:
		log.Fatal(err)
	}
	got, err := client.Get(ctx, tok, record.StringKey("guid-1"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Doc.Lookup("instances").AsInt64())
}
