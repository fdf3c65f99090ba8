package scalar

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens/internal/edit"
)

func decimal128(t testing.TB, s string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConvert(t *testing.T) {
	t.Parallel()
	oid := bson.ObjectID{1, 2, 3, 0xff}
	for _, tc := range []struct {
		from, to Type
		in       any
		out      any // nil: refused
	}{
		{Int, Long, int32(-5), int64(-5)},
		{Int, Double, int32(7), 7.0},
		{Int, Decimal, int32(7), decimal128(t, "7")},
		{Int, String, int32(-7), "-7"},
		{Int, Bool, int32(1), true},
		{Int, Bool, int32(2), nil},
		{Long, Int, int64(math.MaxInt32), int32(math.MaxInt32)},
		{Long, Int, int64(math.MaxInt32 + 1), nil},
		{Long, Int, int64(math.MinInt32 - 1), nil},
		{Long, Double, int64(1) << 53, float64(1 << 53)},
		{Long, Double, int64(1)<<53 + 1, nil},
		{Long, Double, int64(math.MaxInt64), nil},
		{Double, Int, -3.0, int32(-3)},
		{Double, Int, math.Copysign(0, -1), nil},
		{Double, Int, math.NaN(), nil},
		{Double, Int, math.Inf(1), nil},
		{Double, Long, 1e15, int64(1e15)},
		{Double, Long, 1e300, nil},
		{Double, Decimal, 0.1, decimal128(t, "0.1")},
		{Double, String, 0.1, "0.1"},
		{Decimal, Double, decimal128(t, "1.10"), nil}, // would come back as 1.1
		{Decimal, Long, decimal128(t, "12"), int64(12)},
		{Decimal, Long, decimal128(t, "1.2E+1"), int64(12)},
		{Decimal, Long, decimal128(t, "12.0"), nil},
		{Decimal, String, decimal128(t, "1.10"), "1.10"},
		{String, Int, "12", int32(12)},
		{String, Int, "+12", nil},
		{String, Int, " 12", nil},
		{String, Int, "", nil},
		{String, Bool, "true", true},
		{String, Bool, "1", nil},
		{Bool, Int, false, int32(0)},
		{String, ObjectID, oid.Hex(), oid},
		{String, ObjectID, "FF", nil},
		{ObjectID, String, oid, oid.Hex()},
		{String, UUID, "00010203-0405-0607-0809-0a0b0c0d0e0f", bson.Binary{Subtype: 4, Data: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}},
		{String, UUID, "00010203-0405-0607-0809-0A0B0C0D0E0F", nil},
		{String, UUID, "00010203", nil},
		{UUID, String, bson.Binary{Subtype: 3, Data: make([]byte, 16)}, nil},
		{UUID, String, bson.Binary{Subtype: 4, Data: make([]byte, 15)}, nil},
		{UUID, String, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, "00000000-0000-0000-0000-000000000000"},
		{Date, RFC3339, bson.DateTime(1700000000000), "2023-11-14T22:13:20Z"},
		{Date, RFC3339, bson.DateTime(-1), "1969-12-31T23:59:59.999Z"},
		{Date, RFC3339, bson.DateTime(math.MaxInt64), nil},
		{RFC3339, Date, "2023-11-14T22:13:20.250Z", bson.DateTime(1700000000250)},
		{RFC3339, Date, "2023-11-14T23:13:20+01:00", nil}, // the offset would be lost
		{RFC3339, Date, "2023-11-14T22:13:20.000Z", nil},
		{RFC3339, Date, "yesterday", nil},
		{RFC3339, Date, "2023-11-14T22:13:20.123456789Z", nil}, // finer than a date
		{RFC3339, Date, "2023-11-14T22:13:20.1Z", nil},
		{RFC3339, Date, "2023-11-14t22:13:20z", nil},
		{RFC3339, Epoch, "2023-11-14T22:13:20.250Z", nil},
		{Epoch, RFC3339, int64(1700000000), "2023-11-14T22:13:20Z"},
		{RFC3339, Epoch, "2023-11-14T22:13:20Z", int64(1700000000)},
		{Epoch, Date, int64(-1), bson.DateTime(-1000)},
		{Epoch, Date, int64(math.MaxInt64), nil},
		{Date, Epoch, bson.DateTime(1500), nil},
		{Date, Millis, bson.DateTime(1500), int64(1500)},
		{Millis, Date, int64(-1), bson.DateTime(-1)},
		{Millis, RFC3339, int64(1700000000250), "2023-11-14T22:13:20.250Z"},
		{Millis, Epoch, int64(1500), nil},
	} {
		t.Run(fmt.Sprintf("%s to %s %v", tc.from, tc.to, tc.in), func(t *testing.T) {
			t.Parallel()
			if !tc.from.Convertible(tc.to) {
				t.Fatal("the pair is not allowed")
			}
			_, in, err := bson.MarshalValue(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Convert(new(edit.Editor), in, tc.from, tc.to)
			if tc.out == nil {
				if err == nil {
					t.Fatalf("became %x", got)
				}
				return
			}
			typ, want, merr := bson.MarshalValue(tc.out)
			if merr != nil {
				t.Fatal(merr)
			}
			if err != nil || !bytes.Equal(got, want) || typ != tc.to.BSON() {
				t.Errorf("%x, %v; want %x", got, err, want)
			}
		})
	}
}

// TestConvertIsExact: whatever is accepted comes back, to the bit, for every pair.
func TestConvertIsExact(t *testing.T) {
	t.Parallel()
	size := map[Type]int{Int: 4, Long: 8, Double: 8, Decimal: 16, ObjectID: 12, UUID: 21, Date: 8, Epoch: 8, Millis: 8}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.SampledFrom(Types).Draw(t, "from")
		to := rapid.SampledFrom(from.Targets()).Draw(t, "to")
		var in []byte
		switch n, fixed := size[from]; {
		case fixed:
			in = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "value")
			if from == UUID {
				copy(in, []byte{16, 0, 0, 0, 4})
			}
		case from == Bool:
			in = []byte{byte(rapid.IntRange(0, 1).Draw(t, "value"))}
		default:
			in = AppendString(nil, rapid.OneOf(rapid.StringMatching(`-?[0-9]{1,20}(\.[0-9]{1,4})?(e[0-9])?`), rapid.String(),
				rapid.StringMatching(`20[0-9]{2}-0[1-9]-1[0-9]T0[0-9]:0[0-9]:0[0-9](\.[0-9]{1,6})?Z`)).Draw(t, "value"))
		}
		e := new(edit.Editor)
		out, err := Convert(e, in, from, to)
		if err != nil {
			return
		}
		back, err := Convert(e, out, to, from)
		if err != nil || !bytes.Equal(back, in) {
			t.Fatalf("%s %x became %s %x and came back as %x (%v)", from, in, to, out, back, err)
		}
	})
}
