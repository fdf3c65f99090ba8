package recordio_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestScanOfAShardedCollectionSeesEveryRecord walks collections whose records lie on two
// shards, in pages that are far smaller than what each shard has, in key order.
func TestScanOfAShardedCollectionSeesEveryRecord(t *testing.T) {
	t.Parallel()
	const count = 5000
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	ns := storetest.OpenSuite(t, c.URI(), db)
	docs := make([]any, count)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("record-%05d", i)}, {Key: "n", Value: i}}
	}
	for _, kind := range []string{"hashed", "ranged", "unsharded"} {
		t.Run(kind, func(t *testing.T) {
			tok, err := ns.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
			if err != nil {
				t.Fatal(err)
			}
			switch kind {
			case "hashed":
				c.ShardHashed(t, db, tok.Name)
			case "ranged":
				c.ShardRanged(t, db, tok.Name, "record-01000", "record-02000", "record-03000")
			}
			if _, err := c.Client().Database(db).Collection(tok.Name).InsertMany(t.Context(), docs); err != nil {
				t.Fatal(err)
			}
			for _, limit := range []int{97, 1000, 3000} {
				seen := 0
				var from record.Cursor
				for {
					page, err := ns.Scan(t.Context(), record.ScanRequest{Token: tok, Range: record.Range{From: from}, Limit: limit})
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range page.Records {
						if want := fmt.Sprintf("record-%05d", seen); r.Key != record.StringKey(want) {
							t.Fatalf("pages of %d: record %d is %s, want %s", limit, seen, r.Key, want)
						}
						seen++
					}
					if page.Done {
						break
					}
					from = page.Next
				}
				if seen != count {
					t.Errorf("pages of %d: seen %d records of %d", limit, seen, count)
				}
			}
		})
	}
}

// TestScanNeedsNoSort looks at the plan: the order of a scan comes from the index, on a
// node of its own and on each shard.
func TestScanNeedsNoSort(t *testing.T) {
	t.Parallel()
	uri, name := mongotest.Database(t)
	alone := storetest.OpenSuite(t, uri, name)
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	c.ShardHashed(t, db, "kind.n1")
	for where, ns := range map[string]*mongostore.Namespace{"replica set": alone, "sharded": storetest.OpenSuite(t, c.URI(), db)} {
		if _, err := ns.DB.Collection("kind.n1").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
			t.Fatal(err)
		}
		bound := record.Cursor(record.StringKey("a"))
		find := recordio.AppendScan(nil, wire.Place{Coll: "kind.n1"}, record.Range{From: bound}, 100, recordio.ReadOptions{})
		raw, err := ns.DB.RunCommand(t.Context(), bson.D{{Key: "explain", Value: bson.Raw(find)}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		stages := map[string]bool{}
		stagesOf(raw.Lookup("queryPlanner"), stages)
		if !stages["IXSCAN"] || stages["SORT"] || stages["COLLSCAN"] {
			t.Errorf("%s: plan has stages %v, want IXSCAN without SORT:\n%s", where, stages, raw)
		}
	}
}

func stagesOf(v bson.RawValue, stages map[string]bool) {
	values, err := bson.Raw(v.Value).Elements()
	if err != nil {
		return
	}
	for _, e := range values {
		inner := e.Value()
		if name, ok := inner.StringValueOK(); ok && e.Key() == "stage" {
			stages[name] = true
		}
		if inner.Type == bson.TypeEmbeddedDocument || inner.Type == bson.TypeArray {
			stagesOf(inner, stages)
		}
	}
}
