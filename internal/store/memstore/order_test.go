package memstore

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func valueOf(t interface{ Fatalf(string, ...any) }, v any) bson.RawValue {
	typ, b, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatalf("marshal %v: %v", v, err)
	}
	return bson.RawValue{Type: typ, Value: b}
}

// Pages are in this order too, whatever was inserted first.
func TestScanOrder(t *testing.T) {
	s := New()
	tok, err := s.Provision(t.Context(), record.KindSpec{Name: "things", Fixed: true}, "things")
	if err != nil {
		t.Fatal(err)
	}
	want := []any{int32(-1), 2.5, int64(3), "a", bson.ObjectID{1}, true, bson.DateTime(0)}
	for _, id := range slices.Backward(want) {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Foreign().Insert(t.Context(), "things", doc); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Scan(t.Context(), record.ScanRequest{Token: tok})
	if err != nil || len(page.Records) != len(want) {
		t.Fatalf("%d records, %v", len(page.Records), err)
	}
	for i, r := range page.Records {
		if record.CompareValues(r.Key.Value(), valueOf(t, want[i])) != 0 {
			t.Errorf("record %d is %s, want %v", i, r.Key, want[i])
		}
	}
}
