package lenstest

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/packages"
	"dbcontroller.dev/internal/base/raced"
)

// RealData returns the first records of the package sample, at most limit; 0 means all. Under the
// race detector it returns every tenth of them: there a transformation takes six times as long, and
// most records run the same code.
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
