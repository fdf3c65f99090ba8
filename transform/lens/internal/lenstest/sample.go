package lenstest

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/packages"
	"dbcontroller.dev/internal/base/raced"
)

// RealData is the sample's first records, 0 for all. What a lens does with a record takes the race
// detector six times as long, and with the next record it goes through the same code: scripts/test
// runs these tests with it over every tenth record, and without it over all.
func RealData(t *testing.T, limit int) []bson.Raw {
	t.Helper()
	docs, err := packages.Load(limit)
	if err != nil {
		t.Fatal(err)
	}
	if !raced.On {
		return docs
	}
	var some []bson.Raw
	for i := 0; i < len(docs); i += 10 {
		some = append(some, docs[i])
	}
	return some
}
