package provision

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/wire"
)

// TestOptionsOfAnotherForm: options that no server sends today are refused and cause no panic.
func TestOptionsOfAnotherForm(t *testing.T) {
	t.Parallel()
	if err := checkOptions("k", wire.MustMarshal(bson.D{{Key: "collation", Value: 1}})); err == nil {
		t.Error("a collation that is a number is served")
	}
}
