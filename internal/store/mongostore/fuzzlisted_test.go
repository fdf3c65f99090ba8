package mongostore

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FuzzListed: what an application's administrator declares in a collection or a view is read as a
// fence of ours, or as the application's.
func FuzzListed(f *testing.F) {
	validator := bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 1}}}}
	deep := bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "a"}}}}
	for range 120 {
		deep = bson.D{{Key: "$facet", Value: bson.A{deep}}}
	}
	for _, options := range []bson.D{
		{{Key: "validator", Value: bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{fencePrefix + "orders.n1", ""}}}}}}},
		{{Key: "validator", Value: validator}, {Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: 5}},
		{{Key: "validator", Value: passTombstones(mustMarshal(validator))}},
		{{Key: "validator", Value: bson.D{{Key: "$or", Value: bson.A{1, validator}}}}},
		{{Key: "viewOn", Value: "orders"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$comment", Value: fencePrefix + retiredMark + "orders.n1"}}}}}}},
		{{Key: "viewOn", Value: 1}, {Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "a"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$unionWith", Value: "b"}}}}}}},
			bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: "c"}}}}, bson.D{{Key: "$graphLookup", Value: bson.D{{Key: "from", Value: 5}}}}, "x",
		}}},
		{{Key: "pipeline", Value: bson.A{deep}}},
	} {
		f.Add("view", []byte(mustMarshal(options)))
		f.Add("collection", []byte(mustMarshal(options)))
	}
	f.Add("collection", []byte{5, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, kind string, options []byte) {
		c := collection{Name: "orders", Type: kind, Options: options}
		if mark := c.fenceMark(); mark != "" && !bytes.Contains(options, []byte(fencePrefix+mark)) {
			t.Errorf("mark %q", mark)
		} else if c.retired() && (kind != "view" || !strings.HasPrefix(mark, retiredMark)) {
			t.Errorf("%s with mark %q is retired", kind, mark)
		}
		names := []string{c.viewOn()}
		if stages, ok := c.Options.Lookup("pipeline").ArrayOK(); ok {
			names = append(names, readsOf(bson.Raw(stages), 0)...)
		}
		for _, name := range names {
			if !bytes.Contains(options, []byte(name)) {
				t.Errorf("it reads %q, which it does not name", name)
			}
		}
		// The event of a collMod has the same options.
		if mark := fenceMark(options); mark != "" && (strings.HasPrefix(mark, closingMark) || !bytes.Contains(options, []byte(fencePrefix+mark))) {
			t.Errorf("an event with mark %q", mark)
		}
		validator, ok := c.Options.Lookup("validator").DocumentOK()
		if !ok || validate(validator) != nil {
			return
		}
		inner := withoutTombstones(validator)
		if !bytes.Equal(inner, validator) && !bytes.Equal(mustMarshal(passTombstones(inner)), validator) {
			t.Errorf("%s is taken for the wrapper of %s", validator, inner)
		}
		if got := withoutTombstones(mustMarshal(passTombstones(validator))); !bytes.Equal(got, validator) {
			t.Errorf("%s came back as %s", validator, got)
		}
	})
}
