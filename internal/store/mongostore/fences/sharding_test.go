package fences_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestMaxKeyStaysBehind moves the last range of a collection that is sharded by range. The
// server leaves the record with the _id MaxKey behind, which is why no switch begins while
// there is one, seen or not. By hash nothing is lost and nothing is said.
func TestMaxKeyStaysBehind(t *testing.T) {
	t.Parallel()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	ns := storetest.OpenSuite(t, c.URI(), db)
	toks := map[string]record.Token{}
	for _, kind := range []string{"ranged", "hashed", "unsharded"} {
		tok, err := ns.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		toks[kind] = tok
	}
	// Each shard always has a range: one that has none is not asked.
	c.ShardRanged(t, db, toks["ranged"].Name, "h", "t")
	c.ShardHashed(t, db, toks["hashed"].Name)
	hindrances := func() string {
		t.Helper()
		found, err := ns.Hindrances(t.Context(), []record.Token{toks["ranged"], toks["hashed"], toks["unsharded"]})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(whats(found), "; ")
	}
	seen := func(tok record.Token) int64 {
		t.Helper()
		n, err := c.Client().Database(db).Collection(tok.Name).CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.MaxKey{}}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if found := hindrances(); found != "" {
		t.Errorf("without records: %s", found)
	}
	for _, tok := range toks {
		docs := []any{bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "_id", Value: "z"}}, bson.D{{Key: "_id", Value: bson.MaxKey{}}}}
		if _, err := c.Client().Database(db).Collection(tok.Name).InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
	}
	want := "the record with the _id MaxKey in " + db + ".ranged.n1, which is sharded by {_id: 1}: MongoDB leaves such a record behind"
	var gone bool
	for _, to := range []int{1, 0} {
		if found := hindrances(); !strings.HasPrefix(found, want) || strings.Contains(found, "hashed.n1") {
			t.Errorf("with the record: %q, want %q", found, want)
		}
		chunks := c.Chunks(t, db, toks["ranged"].Name)
		c.Move(t, db, toks["ranged"].Name, chunks[len(chunks)-1], to)
		gone = gone || seen(toks["ranged"]) == 0
		for _, chunk := range c.Chunks(t, db, toks["hashed"].Name) {
			c.Move(t, db, toks["hashed"].Name, chunk, to)
		}
		if n := seen(toks["hashed"]); n != 1 {
			t.Errorf("by hash the record is found %d times", n)
		}
	}
	if !gone {
		t.Log("this server moves the record: what is documented of it, and the suite's Backend.NoMaxKey, can go")
	}
	for kind, want := range map[string]record.Sharding{
		"ranged":    {Cluster: true, Key: fences.ByRange, MaxKey: true, Loses: fences.MaxKeyAdvice},
		"hashed":    {Cluster: true, Key: fences.ByHash, MaxKey: true},
		"unsharded": {Cluster: true, MaxKey: true},
	} {
		want.Name = db + "." + toks[kind].Name
		if s, err := ns.Sharding(t.Context(), record.KindSpec{Name: kind}, toks[kind].Name); err != nil || s != want {
			t.Errorf("sharding: %+v, %v; want %+v", s, err, want)
		}
	}
	// A tombstone is no record.
	tombstone := bson.D{{Key: "$set", Value: bson.D{{Key: wire.GuardField, Value: bson.D{{Key: "x", Value: true}}}}}}
	res, err := c.Client().Database(db).Collection(toks["ranged"].Name).UpdateByID(t.Context(), bson.MaxKey{}, tombstone)
	if err != nil || res.MatchedCount != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if found := hindrances(); found != "" {
		t.Errorf("with a tombstone: %s", found)
	}
}
