package propose_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/propose"
)

// Two samples hold the same records before and after a change of their form.
func ExampleLens() {
	sample := func(docs ...bson.D) (out []bson.Raw) {
		for _, d := range docs {
			raw, err := bson.Marshal(d)
			if err != nil {
				panic(err)
			}
			out = append(out, raw)
		}
		return out
	}
	old := sample(
		bson.D{{Key: "_id", Value: "ann"}, {Key: "mail", Value: "ann@example.com"}, {Key: "visits", Value: int32(3)}},
		bson.D{{Key: "_id", Value: "bob"}, {Key: "mail", Value: "bob@example.com"}, {Key: "visits", Value: int32(8)}},
	)
	now := sample(
		bson.D{{Key: "_id", Value: "ann"}, {Key: "email", Value: "ann@example.com"}, {Key: "visits", Value: int64(3)}},
		bson.D{{Key: "_id", Value: "bob"}, {Key: "email", Value: "bob@example.com"}, {Key: "visits", Value: int64(8)}},
	)
	draft, err := propose.Lens("customers", "customers", old, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(draft.Text))
	fmt.Println(draft.Unsure, "to decide")
	// Output:
	// # Drafted from 2 records that both samples have: the lens reproduces 2 of them.
	// lens: 1
	// kinds: {from: customers, to: customers}
	// operations:
	//   - rename: {from: mail, to: email}
	//   - convert: {field: visits, from: int, to: long}
	// 0 to decide
}
