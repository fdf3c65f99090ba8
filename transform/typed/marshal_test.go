package typed

import (
	"bytes"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestMapsAreWrittenInOrder: equal records are equal bytes, also with Go maps inside.
func TestMapsAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	type inner struct {
		Labels map[string]int64 `bson:"labels"`
	}
	type account struct {
		ID     string           `bson:"_id"`
		Orders map[string]inner `bson:"orders"`
		ByYear map[int]string   `bson:"by_year"`
		None   map[string]int   `bson:"none"`
	}
	a := account{ID: "a", Orders: map[string]inner{}, ByYear: map[int]string{}}
	for i := range 40 {
		a.Orders[fmt.Sprintf("order-%02d", i)] = inner{map[string]int64{"x": 1, "y": 2, "z": int64(i)}}
		a.ByYear[2000+i] = "y"
	}
	first, err := encodeStruct(a)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := encodeStruct(a)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("another time: %v\n%s\n%s", err, first, again)
		}
	}
	elements, err := first.Lookup("orders").Document().Elements()
	if err != nil || len(elements) != 40 || elements[0].Key() != "order-00" || elements[39].Key() != "order-39" {
		t.Errorf("orders %s, %v", first.Lookup("orders"), err)
	}
	if first.Lookup("none").Type != bson.TypeNull || first.Lookup("by_year", "2039").StringValue() != "y" {
		t.Errorf("encoded as %s", first)
	}
	var back account
	if err := decodeStruct(first, &back); err != nil || len(back.Orders) != 40 || back.Orders["order-07"].Labels["z"] != 7 {
		t.Errorf("decoded as %+v, %v", back, err)
	}
}
