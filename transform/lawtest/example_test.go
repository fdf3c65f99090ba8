package lawtest_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
)

// A test of a lens: it loses nothing on the way there and back, whatever the records are.
func ExampleCheck() {
	_ = func(t *testing.T) { // TestLaws
		l, err := lens.Parse("customers.yaml", []byte("operations:\n  - rename: {from: mail, to: email}\n"))
		if err != nil {
			t.Fatal(err)
		}
		registry := transform.NewRegistry("shop")
		if err := registry.Add("v1", "v2", l.Spec("customers", "customers", lens.Managed())); err != nil {
			t.Fatal(err)
		}
		up, err := registry.Direction("v1", "v2")
		if err != nil {
			t.Fatal(err)
		}
		down, err := registry.Direction("v2", "v1")
		if err != nil {
			t.Fatal(err)
		}
		// Few names, so that both sides often have the same customer.
		customers := func(field string) *rapid.Generator[[]record.Record] {
			return rapid.Custom(func(t *rapid.T) []record.Record {
				key := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "name")
				doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: field, Value: rapid.String().Draw(t, field)}})
				if err != nil {
					t.Fatal(err)
				}
				return []record.Record{{Kind: "customers", Key: record.StringKey(key), Doc: doc}}
			})
		}
		lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: customers("mail"), New: customers("email")})
	}
}
