package transform_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

// TestChainOfIDs: ObjectIds become names, and names documents, in one step over both.
func TestChainOfIDs(t *testing.T) {
	t.Parallel()
	first := parseLens(t, "key: {from: '{id:objectId}', to: 'users/{id}'}\noperations: []\n")
	second := parseLens(t, "key: {from: 'users/{id}', to: {v: 3, id: '{id:objectId}'}}\noperations: [{rename: {from: a, to: b}}]\n")
	r := chain(t, []transform.Spec{first.Spec("a", "b")}, []transform.Spec{second.Spec("b", "c")})
	ids := rapid.SampledFrom([]bson.ObjectID{{1}, {2}, {0xff}})
	draw := func(kind, field string, id func(bson.ObjectID) any) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			d := bson.D{{Key: "_id", Value: id(ids.Draw(t, "id"))}}
			if rapid.Bool().Draw(t, "field") {
				d = append(d, bson.E{Key: field, Value: 1})
			}
			doc, err := bson.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			key, err := record.KeyOfDoc(doc)
			if err != nil {
				t.Fatal(err)
			}
			return []record.Record{{Kind: kind, Key: key, Doc: doc}}
		})
	}
	lawtest.Check(t, lawtest.Case{
		Up: direct(t, r, "v1", "v3"), Down: direct(t, r, "v3", "v1"),
		Old: draw("a", "a", func(id bson.ObjectID) any { return id }),
		New: draw("c", "b", func(id bson.ObjectID) any { return bson.D{{Key: "v", Value: 3}, {Key: "id", Value: id}} }),
	})
}

// TestShowGroup: people read the key that a group is named by, of whichever type it is.
func TestShowGroup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name any
		want string
	}{
		{"users/1", "users/1"},
		{bson.ObjectID{0x65, 11: 0x5e}, `{"$oid":"65000000000000000000005e"}`},
		{int32(5), `{"$numberLong":"5"}`},
		{bson.D{{Key: "a", Value: "x"}}, `{"a": "x"}`},
	} {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: tc.name}})
		if err != nil {
			t.Fatal(err)
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			t.Fatal(err)
		}
		if got := transform.ShowGroup(string(key)); got != tc.want {
			t.Errorf("%v is shown as %s, want %s", tc.name, got, tc.want)
		}
	}
	for _, name := range []string{"team x", "", "\x07short", "\x03\xff\xff\xff\xff"} {
		if got := transform.ShowGroup(name); got == name || got[0] != '"' {
			t.Errorf("%q is shown as %s", name, got)
		}
	}
}
