package mongostore_test

import (
	"context"
	"fmt"
	"log"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// One page of a source is copied into a target, guarded by the page's version. It needs a
// server, so it is compiled and not run.
func Example() {
	ctx := context.Background()
	old, err := mongostore.Open(ctx, mongostore.Config{URI: "mongodb://localhost/?replicaSet=rs", Database: "bbs_v1"})
	if err != nil {
		log.Fatal(err)
	}
	defer old.Close(ctx)
	next, err := mongostore.Open(ctx, mongostore.Config{URI: "mongodb://localhost/?replicaSet=rs", Database: "bbs_v2"})
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close(ctx)

	kind := record.KindSpec{Name: "lrp"}
	source, err := old.Describe(ctx, kind, record.PhysicalName("lrp", 0))
	if err != nil {
		log.Fatal(err)
	}
	target, err := next.Provision(ctx, kind, record.PhysicalName("lrp", 0))
	if err != nil {
		log.Fatal(err)
	}
	page, err := old.Scan(ctx, record.ScanRequest{Token: source.Token, Limit: 1000})
	if err != nil {
		log.Fatal(err)
	}
	batch := record.Batch{Tokens: record.Tokens{"lrp": target}, Epoch: 1}
	for _, r := range page.Records {
		batch.Groups = append(batch.Groups, record.GroupWrite{
			Group: r.Key.String(), Version: page.Version,
			Writes: []record.Write{{Kind: "lrp", Key: r.Key, Doc: r.Doc}},
		})
	}
	results, err := next.Load(ctx, batch)
	if err != nil {
		log.Fatal(err)
	}
	for i, res := range results {
		fmt.Println(batch.Groups[i].Group, res.Outcome)
	}
}
