package record_test

import (
	"cmp"
	"dbcontroller.dev/record"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

func valueOf(t interface{ Fatalf(string, ...any) }, v any) bson.RawValue {
	typ, b, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatalf("marshal %v: %v", v, err)
	}
	return bson.RawValue{Type: typ, Value: b}
}

// The order in which MongoDB's index of _id has these values.
func TestOrderAcrossTypes(t *testing.T) {
	t.Parallel()
	third, err := bson.ParseDecimal128("0.3333333333333333333333333333333333")
	if err != nil {
		t.Fatal(err)
	}
	sorted := []any{
		bson.MinKey{}, bson.Null{}, math.NaN(), math.Inf(-1), int64(math.MinInt64), -1.5, int32(-1), int64(0), third, 0.5,
		int64(1), int64(1 << 53), int64(1<<53 + 1), 1e300, math.Inf(1),
		"", "A", "a", "a\x00", "aa", "b", "ä",
		bson.D{}, bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: int32(0)}},
		bson.D{{Key: "a", Value: 1.5}}, bson.D{{Key: "b", Value: int32(0)}}, bson.D{{Key: "a", Value: "x"}},
		bson.Binary{Data: []byte{9}}, bson.Binary{Subtype: 4, Data: []byte{0}}, bson.Binary{Data: []byte{0, 0}},
		bson.ObjectID{1}, bson.ObjectID{2}, false, true, bson.DateTime(-1), bson.DateTime(1),
		bson.Timestamp{T: 1, I: 9}, bson.Timestamp{T: 2, I: 0}, bson.MaxKey{},
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if have, want := record.CompareValues(valueOf(t, a), valueOf(t, b)), cmp.Compare(i, j); have != want {
				t.Errorf("%T %v and %T %v compare as %d, want %d", a, a, b, b, have, want)
			}
		}
	}
}

// Values of one key are equal in the order, and equal ones have one key: rows are found
// by the order and distinguished by keys.
func TestOrderAgreesWithKeys(t *testing.T) {
	t.Parallel()
	numbers := rapid.OneOf(
		rapid.Map(rapid.Int64Range(-5, 5), func(n int64) any { return n }),
		rapid.Map(rapid.Int32Range(-5, 5), func(n int32) any { return n }),
		rapid.Map(rapid.Int64Range(-10, 10), func(n int64) any { return float64(n) / 2 }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := valueOf(t, numbers.Draw(t, "a")), valueOf(t, numbers.Draw(t, "b"))
		ka, errA := record.KeyOf(a)
		kb, errB := record.KeyOf(b)
		if errA != nil || errB != nil {
			t.Fatalf("keys: %v, %v", errA, errB)
		}
		if equal := record.CompareValues(a, b) == 0; equal != (ka == kb) {
			t.Fatalf("%s and %s: equal %t, keys %x and %x", a, b, equal, ka, kb)
		}
	})
}
