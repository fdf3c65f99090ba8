package recordio_test

import (
	"cmp"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

// TestKeysAreTheServers: two values are one key, and compare as equal, if and only if the
// server refuses the second one as a duplicate of the first; and all others have the order
// of its index. Values are an _id, in a document that is one, and in an array within it.
func TestKeysAreTheServers(t *testing.T) {
	t.Parallel()
	_, name := mongotest.Database(t)
	db := mongotest.Client(t).Database(name)
	for name, place := range map[string]func(bson.RawValue) any{
		"alone":         func(v bson.RawValue) any { return v },
		"in a document": func(v bson.RawValue) any { return bson.D{{Key: "f", Value: v}, {Key: "g", Value: true}} },
		"in an array":   func(v bson.RawValue) any { return bson.D{{Key: "f", Value: bson.A{v, v}}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := db.Collection(name)
			var ids []bson.RawValue
			for _, v := range recordtest.OddValues(t) {
				switch v.Type {
				case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
					if name == "alone" {
						continue // CheckKey refuses them, as the server does
					}
				}
				typ, b, err := bson.MarshalValue(place(v))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, bson.RawValue{Type: typ, Value: b})
			}
			rank := serverRanks(t, coll, ids)
			keys := make([]record.Key, len(ids))
			forms := make([]string, len(ids))
			for i, id := range ids {
				var err error
				if keys[i], err = record.KeyOf(id); err != nil {
					t.Fatalf("key of %s: %v", id, err)
				}
				forms[i] = string(record.AppendOrdered(nil, id))
				filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{keys[i].Value(), "another", bson.ObjectID{7, 7}}}}}}
				if n, err := coll.CountDocuments(t.Context(), filter); err != nil || n != 1 {
					t.Errorf("%s %.80s: %d records have the value of its key, %s (%v)", id.Type, id, n, keys[i], err)
				}
			}
			for i, a := range ids {
				for j, b := range ids {
					want := cmp.Compare(rank[i], rank[j])
					if have := keys[i] == keys[j]; have != (want == 0) {
						t.Errorf("%s %.80s and %s %.80s: one key %t, the server compares them as %d", a.Type, a, b.Type, b, have, want)
					}
					if have := record.CompareValues(a, b); have != want {
						t.Errorf("%s %.80s and %s %.80s compare as %d, the server as %d", a.Type, a, b.Type, b, have, want)
					}
					if have := cmp.Compare(forms[i], forms[j]); have != want {
						t.Errorf("%s %.80s and %s %.80s: ordered forms as %d, the server as %d", a.Type, a, b.Type, b, have, want)
					}
				}
			}
		})
	}
}

// serverRanks inserts documents with these ids, and returns of each the place of its key
// among the distinct ones in the index of _id.
func serverRanks(t *testing.T, coll *mongo.Collection, ids []bson.RawValue) []int {
	t.Helper()
	stored := map[int]int{} // from the number in the document
	same := make([]int, len(ids))
	for i, id := range ids {
		same[i] = i
		_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: i}})
		if err == nil {
			continue
		}
		if !mongo.IsDuplicateKeyError(err) {
			t.Fatalf("insert %s %.80s: %v", id.Type, id, err)
		}
		var is struct{ N int }
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}}
		if err := coll.FindOne(t.Context(), filter).Decode(&is); err != nil {
			t.Fatalf("which one %s %.80s equals: %v", id.Type, id, err)
		}
		same[i] = is.N
	}
	cursor, err := coll.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetHint("_id_").SetProjection(bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: 0}}))
	if err != nil {
		t.Fatal(err)
	}
	var sorted []struct{ N int }
	if err := cursor.All(t.Context(), &sorted); err != nil {
		t.Fatal(err)
	}
	for place, s := range sorted {
		stored[s.N] = place
	}
	rank := make([]int, len(ids))
	for i := range ids {
		rank[i] = stored[same[i]]
	}
	return rank
}
