package lens_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// TestFanOutLimit: a list of very many small entries is refused before a record is made of each.
func TestFanOutLimit(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("x.yaml", []byte("operations:\n  - fanOut: {field: v, as: list, kind: parts, key: '{_key}/{index}', value: on}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for n, refused := range map[int]bool{50_000: false, 50_001: true} {
		list := make(bson.A, n)
		for i := range list {
			list[i] = true
		}
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "x"}, {Key: "v", Value: list}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.Spec("wholes", "wholes").Up(transform.Group{Records: []record.Record{{Kind: "wholes", Key: record.StringKey("x"), Doc: doc}}}, transform.Group{})
		if refused && (err == nil || !strings.Contains(err.Error(), "has 50001 entries")) || !refused && (err != nil || len(out) != n+1) {
			t.Errorf("%d entries become %d records, %v", n, len(out), err)
		}
	}
}
