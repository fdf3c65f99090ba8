package mongotest_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

func TestDatabaseIsUniqueAndDropped(t *testing.T) {
	client := mongotest.Client(t)
	var first, second string
	t.Run("use", func(t *testing.T) {
		_, first = mongotest.Database(t)
		_, second = mongotest.Database(t)
		for _, name := range []string{first, second} {
			if _, err := client.Database(name).Collection("c").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if first == second || !strings.HasPrefix(first, mongotest.DatabasePrefix) {
		t.Fatalf("names %q and %q, want different ones starting with %q", first, second, mongotest.DatabasePrefix)
	}
	left, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{first, second}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Fatalf("databases %v are left after their test", left)
	}
}
