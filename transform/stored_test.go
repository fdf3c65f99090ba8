package transform

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// TestResultsAreAsTheTargetStoresThem: whatever makes documents, in whatever order of fields,
// the engine compares and writes what the database keeps of them, which has the _id first.
func TestResultsAreAsTheTargetStoresThem(t *testing.T) {
	t.Parallel()
	last := func(src, _ Group) ([]record.Record, error) {
		r := src.Records[0]
		made := doc(t, bson.D{{Key: "n", Value: int32(1)}, {Key: "_id", Value: "k"}, {Key: "z", Value: nil}})
		return []record.Record{{Kind: r.Kind, Key: r.Key, Doc: made}}, nil
	}
	side := Side{Kinds: []GroupedKind{{KindSpec: record.KindSpec{Name: "orders"}}}}
	r := NewRegistry("shop")
	if err := r.Add("v1", "v2", Spec{Name: "orders", Old: side, New: side, Up: last, Down: last}); err != nil {
		t.Fatal(err)
	}
	want := doc(t, bson.D{{Key: "_id", Value: "k"}, {Key: "n", Value: int32(1)}, {Key: "z", Value: nil}})
	for _, way := range [][2]string{{"v1", "v2"}, {"v2", "v1"}} {
		d, err := r.Direction(way[0], way[1])
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := d.GroupOf("orders", record.StringKey("k"))
		src := Group{Name: id.Name, Records: []record.Record{{Kind: "orders", Key: record.StringKey("k"), Doc: want}}}
		out, err := d.Transform(id, src, Group{Name: id.Name})
		if err != nil || len(out) != 1 || !bytes.Equal(out[0].Doc, want) {
			t.Errorf("%s to %s: %v, %v", way[0], way[1], out, err)
		}
	}
}
