package provision

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
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
		{{Key: "validator", Value: bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{conn.FencePrefix + "orders.n1", ""}}}}}}},
		{{Key: "validator", Value: validator}, {Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: 5}},
		{{Key: "validator", Value: passTombstones(wire.MustMarshal(validator))}},
		{{Key: "validator", Value: bson.D{{Key: "$or", Value: bson.A{1, validator}}}}},
		{{Key: "viewOn", Value: "orders"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$comment", Value: conn.FencePrefix + conn.RetiredMark + "orders.n1"}}}}}}},
		{{Key: "viewOn", Value: 1}, {Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "a"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$unionWith", Value: "b"}}}}}}},
			bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: "c"}}}}, bson.D{{Key: "$graphLookup", Value: bson.D{{Key: "from", Value: 5}}}}, "x",
		}}},
		{{Key: "pipeline", Value: bson.A{deep}}},
	} {
		f.Add("view", []byte(wire.MustMarshal(options)))
		f.Add("collection", []byte(wire.MustMarshal(options)))
	}
	f.Add("collection", []byte{5, 0, 0, 0, 1})
	f.Add("view", []byte("0000\x04pipeline\x00\x00\x00\x00\x00")) // an array of no bytes
	f.Fuzz(func(t *testing.T, kind string, options []byte) {
		c := conn.Collection{Name: "orders", Type: kind, Options: options}
		if mark := c.FenceMark(); mark != "" && !bytes.Contains(options, []byte(conn.FencePrefix+mark)) {
			t.Errorf("mark %q", mark)
		} else if c.Retired() && (kind != "view" || !strings.HasPrefix(mark, conn.RetiredMark)) {
			t.Errorf("%s with mark %q is retired", kind, mark)
		}
		names := []string{c.ViewOn()}
		if stages, ok := c.Options.Lookup("pipeline").ArrayOK(); ok {
			names = append(names, readsOf(bson.Raw(stages), 0)...)
		}
		for _, name := range names {
			if !bytes.Contains(options, []byte(name)) {
				t.Errorf("it reads %q, which it does not name", name)
			}
		}
		// The event of a collMod has the same options.
		if mark := conn.FenceMark(options); mark != "" && (strings.HasPrefix(mark, conn.ClosingMark) || !bytes.Contains(options, []byte(conn.FencePrefix+mark))) {
			t.Errorf("an event with mark %q", mark)
		}
		validator, ok := c.Options.Lookup("validator").DocumentOK()
		if !ok || rawdoc.Validate(validator) != nil {
			return
		}
		inner := withoutTombstones(validator)
		if !bytes.Equal(inner, validator) && !bytes.Equal(wire.MustMarshal(passTombstones(inner)), validator) {
			t.Errorf("%s is taken for the wrapper of %s", validator, inner)
		}
		if got := withoutTombstones(wire.MustMarshal(passTombstones(validator))); !bytes.Equal(got, validator) {
			t.Errorf("%s came back as %s", validator, got)
		}
	})
}
