package lens

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens/internal/edit"
)

func decimal(t testing.TB, s string) bson.Decimal128 {
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
		from, to valueType
		in       any
		out      any // nil: refused
	}{
		{tInt, tLong, int32(-5), int64(-5)},
		{tInt, tDouble, int32(7), 7.0},
		{tInt, tDecimal, int32(7), decimal(t, "7")},
		{tInt, tString, int32(-7), "-7"},
		{tInt, tBool, int32(1), true},
		{tInt, tBool, int32(2), nil},
		{tLong, tInt, int64(math.MaxInt32), int32(math.MaxInt32)},
		{tLong, tInt, int64(math.MaxInt32 + 1), nil},
		{tLong, tInt, int64(math.MinInt32 - 1), nil},
		{tLong, tDouble, int64(1) << 53, float64(1 << 53)},
		{tLong, tDouble, int64(1)<<53 + 1, nil},
		{tLong, tDouble, int64(math.MaxInt64), nil},
		{tDouble, tInt, -3.0, int32(-3)},
		{tDouble, tInt, math.Copysign(0, -1), nil},
		{tDouble, tInt, math.NaN(), nil},
		{tDouble, tInt, math.Inf(1), nil},
		{tDouble, tLong, 1e15, int64(1e15)},
		{tDouble, tLong, 1e300, nil},
		{tDouble, tDecimal, 0.1, decimal(t, "0.1")},
		{tDouble, tString, 0.1, "0.1"},
		{tDecimal, tDouble, decimal(t, "1.10"), nil}, // would come back as 1.1
		{tDecimal, tLong, decimal(t, "12"), int64(12)},
		{tDecimal, tLong, decimal(t, "1.2E+1"), int64(12)},
		{tDecimal, tLong, decimal(t, "12.0"), nil},
		{tDecimal, tString, decimal(t, "1.10"), "1.10"},
		{tString, tInt, "12", int32(12)},
		{tString, tInt, "+12", nil},
		{tString, tInt, " 12", nil},
		{tString, tInt, "", nil},
		{tString, tBool, "true", true},
		{tString, tBool, "1", nil},
		{tBool, tInt, false, int32(0)},
		{tString, tObjectID, oid.Hex(), oid},
		{tString, tObjectID, "FF", nil},
		{tObjectID, tString, oid, oid.Hex()},
		{tString, tUUID, "00010203-0405-0607-0809-0a0b0c0d0e0f", bson.Binary{Subtype: 4, Data: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}},
		{tString, tUUID, "00010203-0405-0607-0809-0A0B0C0D0E0F", nil},
		{tString, tUUID, "00010203", nil},
		{tUUID, tString, bson.Binary{Subtype: 3, Data: make([]byte, 16)}, nil},
		{tUUID, tString, bson.Binary{Subtype: 4, Data: make([]byte, 15)}, nil},
		{tUUID, tString, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, "00000000-0000-0000-0000-000000000000"},
		{tDate, tRFC3339, bson.DateTime(1700000000000), "2023-11-14T22:13:20Z"},
		{tDate, tRFC3339, bson.DateTime(-1), "1969-12-31T23:59:59.999Z"},
		{tDate, tRFC3339, bson.DateTime(math.MaxInt64), nil},
		{tRFC3339, tDate, "2023-11-14T22:13:20.250Z", bson.DateTime(1700000000250)},
		{tRFC3339, tDate, "2023-11-14T23:13:20+01:00", nil}, // the offset would be lost
		{tRFC3339, tDate, "2023-11-14T22:13:20.000Z", nil},
		{tRFC3339, tDate, "yesterday", nil},
		{tRFC3339, tDate, "2023-11-14T22:13:20.123456789Z", nil}, // finer than a date
		{tRFC3339, tDate, "2023-11-14T22:13:20.1Z", nil},
		{tRFC3339, tDate, "2023-11-14t22:13:20z", nil},
		{tRFC3339, tEpoch, "2023-11-14T22:13:20.250Z", nil},
		{tEpoch, tRFC3339, int64(1700000000), "2023-11-14T22:13:20Z"},
		{tRFC3339, tEpoch, "2023-11-14T22:13:20Z", int64(1700000000)},
		{tEpoch, tDate, int64(-1), bson.DateTime(-1000)},
		{tEpoch, tDate, int64(math.MaxInt64), nil},
		{tDate, tEpoch, bson.DateTime(1500), nil},
		{tDate, tMillis, bson.DateTime(1500), int64(1500)},
		{tMillis, tDate, int64(-1), bson.DateTime(-1)},
		{tMillis, tRFC3339, int64(1700000000250), "2023-11-14T22:13:20.250Z"},
		{tMillis, tEpoch, int64(1500), nil},
	} {
		t.Run(fmt.Sprintf("%s to %s %v", tc.from, tc.to, tc.in), func(t *testing.T) {
			t.Parallel()
			if !tc.from.convertible(tc.to) {
				t.Fatal("the pair is not allowed")
			}
			_, in, err := bson.MarshalValue(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := convertValue(new(edit.Editor), in, tc.from, tc.to)
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
			if err != nil || !bytes.Equal(got, want) || typ != tc.to.bson() {
				t.Errorf("%x, %v; want %x", got, err, want)
			}
		})
	}
}

// TestConvertIsExact: whatever is accepted comes back, to the bit, for every pair.
func TestConvertIsExact(t *testing.T) {
	t.Parallel()
	size := map[valueType]int{tInt: 4, tLong: 8, tDouble: 8, tDecimal: 16, tObjectID: 12, tUUID: 21, tDate: 8, tEpoch: 8, tMillis: 8}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.SampledFrom(valueTypes).Draw(t, "from")
		to := rapid.SampledFrom(from.targets()).Draw(t, "to")
		var in []byte
		switch n, fixed := size[from]; {
		case fixed:
			in = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "value")
			if from == tUUID {
				copy(in, []byte{16, 0, 0, 0, 4})
			}
		case from == tBool:
			in = []byte{byte(rapid.IntRange(0, 1).Draw(t, "value"))}
		default:
			in = appendString(nil, rapid.OneOf(rapid.StringMatching(`-?[0-9]{1,20}(\.[0-9]{1,4})?(e[0-9])?`), rapid.String(),
				rapid.StringMatching(`20[0-9]{2}-0[1-9]-1[0-9]T0[0-9]:0[0-9]:0[0-9](\.[0-9]{1,6})?Z`)).Draw(t, "value"))
		}
		e := new(edit.Editor)
		out, err := convertValue(e, in, from, to)
		if err != nil {
			return
		}
		back, err := convertValue(e, out, to, from)
		if err != nil || !bytes.Equal(back, in) {
			t.Fatalf("%s %x became %s %x and came back as %x (%v)", from, in, to, out, back, err)
		}
	})
}
