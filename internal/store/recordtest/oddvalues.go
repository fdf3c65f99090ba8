package recordtest

import (
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OddValues returns values of every BSON type: several of each, pairs that a database regards as
// equal although their bytes differ, and pairs that only look equal. It includes arrays and regular
// expressions. A database accepts both inside an _id, but not as the _id itself.
func OddValues(t testing.TB) []bson.RawValue {
	t.Helper()
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	scope := func(code string, scope any) bson.CodeWithScope {
		return bson.CodeWithScope{Code: bson.JavaScript(code), Scope: scope}
	}
	long := strings.Repeat("x", 300)
	values := []any{
		bson.MinKey{}, bson.Undefined{}, bson.Null{}, bson.MaxKey{}, false, true,
		math.NaN(), math.Float64frombits(0xFFF8000000000001), decimal("NaN"), math.Inf(-1), decimal("-Infinity"), math.Inf(1), decimal("Infinity"),
		int32(0), int64(0), 0.0, math.Copysign(0, -1), decimal("0"), decimal("-0"), decimal("0E+3000"), decimal("-0E-3000"),
		int32(1), int64(1), 1.0, decimal("1"), decimal("1.000"), int32(-1), int64(-1), -1.0, decimal("-1"), decimal("10E-1"),
		int64(1) << 53, float64(1 << 53), int64(1)<<53 + 1, decimal("9007199254740993"), decimal("9007199254740992.5"),
		int64(math.MaxInt64), float64(1 << 63), decimal("9223372036854775807"), decimal("9223372036854775808"), decimal("9223372036854775807.5"),
		int64(math.MinInt64), float64(-1 << 63), decimal("-9223372036854775808"), decimal("-9223372036854775809"),
		0.1, decimal("0.1"), decimal("0.10"), decimal("0.1000000000000000055511151231257827"), decimal("0.1000000000000000055511151231257828"),
		decimal("0.10000000000000001"), decimal("0.100000000000000"), math.Nextafter(0.1, 1), math.Nextafter(0.1, 0),
		1.0 / 3, decimal("0.3333333333333333"), decimal("0.3333333333333333333333333333333333"), decimal("0.333333333333333314829616256247390"), decimal("0.3333333333333333148296162562473909"),
		0.25, decimal("0.25"), decimal("0.250"), 1.1, decimal("1.1"), decimal("1.10"),
		1e300, decimal("1E+300"), 1e22, decimal("1E+22"), 1e23, decimal("1E+23"), 1e17, decimal("1E+17"), int64(1e17),
		5e-324, decimal("4.940656458412465441765687928682214E-324"), decimal("4.940656458412465441765687928682213E-324"), decimal("1E-6176"), decimal("-1E-6176"),
		decimal("9.999999999999999999999999999999999E+6144"), decimal("1E+6111"), decimal("1E+6110"), decimal("10E+6110"), math.MaxFloat64, decimal("1.797693134862315708145274237317044E+308"),
		"", bson.Symbol(""), "a", bson.Symbol("a"), "A", "a\x00", bson.Symbol("a\x00"), "a\x00b", "ab", "b", bson.Symbol("b"), "ä", "a\u0308", "\U0001F600", long,
		bson.JavaScript("a"), bson.JavaScript(""), bson.JavaScript("a\x00b"), bson.JavaScript("b"), bson.JavaScript(long),
		scope("a", bson.D{}), scope("a", bson.D{{Key: "x", Value: int32(1)}}), scope("a", bson.D{{Key: "x", Value: 1.0}}), scope("a", bson.D{{Key: "x", Value: "s"}}),
		scope("a", bson.D{{Key: "x", Value: bson.Symbol("s")}}), scope("b", bson.D{}), scope("", bson.D{}), scope(long, bson.D{}), scope("a\x00b", bson.D{}),
		bson.DBPointer{DB: "db.c", Pointer: bson.ObjectID{1}}, bson.DBPointer{DB: "db.c", Pointer: bson.ObjectID{2}}, bson.DBPointer{DB: "db.d", Pointer: bson.ObjectID{0}},
		bson.DBPointer{DB: "z", Pointer: bson.ObjectID{1}}, bson.DBPointer{DB: long[:256], Pointer: bson.ObjectID{1}}, bson.DBPointer{DB: long[:254], Pointer: bson.ObjectID{1}},
		bson.Binary{}, bson.Binary{Subtype: 2}, bson.Binary{Data: []byte{9}}, bson.Binary{Subtype: 2, Data: []byte{9}}, bson.Binary{Subtype: 4, Data: []byte{9}}, bson.Binary{Subtype: 0x80, Data: []byte{9}},
		bson.Binary{Subtype: 5, Data: make([]byte, 16)}, bson.Binary{Subtype: 3, Data: make([]byte, 16)}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.Binary{Data: []byte{1, 2}}, bson.Binary{Data: make([]byte, 254)}, bson.Binary{Data: make([]byte, 255)}, bson.Binary{Data: make([]byte, 256)}, bson.Binary{Data: make([]byte, 257)},
		bson.ObjectID{}, bson.ObjectID{1}, bson.ObjectID{0xff},
		bson.DateTime(-1), bson.DateTime(0), bson.DateTime(1), bson.DateTime(math.MinInt64), bson.DateTime(math.MaxInt64),
		bson.Timestamp{}, bson.Timestamp{T: 1}, bson.Timestamp{I: 1}, bson.Timestamp{T: 0, I: 0xffffffff}, bson.Timestamp{T: 0xffffffff, I: 1},
		bson.Regex{Pattern: "a"}, bson.Regex{Pattern: "a", Options: "i"}, bson.Regex{Pattern: "ab"}, bson.Regex{}, bson.Regex{Options: "i"},
		bson.A{}, bson.A{int32(1)}, bson.A{1.0}, bson.A{"a"}, bson.A{bson.Symbol("a")}, bson.A{nil}, bson.A{bson.Undefined{}}, bson.A{bson.A{}}, bson.A{int32(1), int32(2)},
		bson.D{}, bson.D{{Key: "", Value: nil}}, bson.D{{Key: "", Value: bson.Undefined{}}}, bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: 1.0}}, bson.D{{Key: "a", Value: decimal("1.0")}},
		bson.D{{Key: "a", Value: "s"}}, bson.D{{Key: "a", Value: bson.Symbol("s")}}, bson.D{{Key: "a", Value: nil}}, bson.D{{Key: "b", Value: int32(0)}}, bson.D{{Key: "a.b", Value: int32(1)}},
		bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: int32(2)}}, bson.D{{Key: "b", Value: int32(2)}, {Key: "a", Value: int32(1)}},
		bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.Symbol("x")}}}}, bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: "x"}}}},
		bson.D{{Key: "a", Value: false}}, bson.D{{Key: "a", Value: true}}, bson.D{{Key: "a", Value: math.NaN()}}, bson.D{{Key: "a", Value: decimal("NaN")}},
		bson.D{{Key: "a", Value: -1.5}}, bson.D{{Key: "aa", Value: -2}}, bson.D{{Key: "a", Value: scope("a", bson.D{})}}, bson.D{{Key: "a", Value: bson.Regex{Pattern: "a"}}},
		bson.D{{Key: "a", Value: bson.MinKey{}}}, bson.D{{Key: "a", Value: bson.MaxKey{}}}, bson.D{{Key: "a", Value: bson.DBPointer{DB: "db.c", Pointer: bson.ObjectID{1}}}},
	}
	out := make([]bson.RawValue, len(values))
	for i, v := range values {
		typ, b, err := bson.MarshalValue(v)
		if err != nil {
			t.Fatalf("value %d, %T: %v", i, v, err)
		}
		out[i] = bson.RawValue{Type: typ, Value: b}
	}
	return out
}
