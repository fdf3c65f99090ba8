package record

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

// anyValue draws values of all types that order each other in more ways than by their type.
func anyValue() *rapid.Generator[any] {
	decimal := func(t *rapid.T, text string) any {
		d, err := bson.ParseDecimal128(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return rapid.Custom(func(t *rapid.T) any {
		text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff, 0x1F600}), 0, 4, -1)
		switch rapid.IntRange(0, 15).Draw(t, "type") {
		case 0:
			return rapid.SampledFrom([]any{bson.Null{}, bson.MinKey{}, bson.MaxKey{}, true, false}).Draw(t, "fixed")
		case 1:
			return rapid.Int64().Draw(t, "long")
		case 2:
			return rapid.Int64Range(-3, 3).Draw(t, "small")
		case 3:
			return rapid.Float64().Draw(t, "double")
		case 4:
			return rapid.SampledFrom([]any{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.SmallestNonzeroFloat64, 0.1, 1.0, 2.5}).Draw(t, "special")
		case 5:
			return decimal(t, rapid.SampledFrom([]string{"0.1", "1E-6176", "9.999999999999999999999999999999999E+6144", "-1E-6176",
				"NaN", "Infinity", "-Infinity", "1.10", "2.5", "1E+30", "-7", "3.000000000000000000000000000000001"}).Draw(t, "decimal"))
		case 6, 7:
			return text.Draw(t, "string")
		case 8:
			return bson.Symbol(text.Draw(t, "symbol"))
		case 9:
			return bson.Binary{Subtype: rapid.SampledFrom([]byte{0, 4, 0x80}).Draw(t, "subtype"), Data: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "bytes")}
		case 10:
			return bson.ObjectID{rapid.Byte().Draw(t, "first")}
		case 11:
			return bson.DateTime(rapid.Int64().Draw(t, "date"))
		case 12:
			return bson.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32Range(0, 2).Draw(t, "i")}
		case 13:
			return bson.Regex{Pattern: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "pattern"), Options: rapid.SampledFrom([]string{"", "i"}).Draw(t, "options")}
		case 14:
			return bson.JavaScript(text.Draw(t, "code"))
		default:
			var d bson.D
			for range rapid.IntRange(0, 3).Draw(t, "fields") {
				d = append(d, bson.E{Key: rapid.SampledFrom([]string{"", "a", "b", "ab"}).Draw(t, "name"), Value: anyValue().Draw(t, "value")})
			}
			if rapid.Bool().Draw(t, "array") {
				a := bson.A{}
				for _, e := range d {
					a = append(a, e.Value)
				}
				return a
			}
			return d
		}
	})
}

func valueOf(t *rapid.T, v any) bson.RawValue {
	typ, b, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: b}
}

// TestOrderedBytes: the bytes have the order of the values, those that compare as equal have
// the same, and no form is the beginning of another one.
func TestOrderedBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := valueOf(t, anyValue().Draw(t, "a")), valueOf(t, anyValue().Draw(t, "b"))
		x, y := AppendOrdered(nil, a), AppendOrdered(nil, b)
		if want, have := CompareValues(a, b), bytes.Compare(x, y); cmp.Compare(want, 0) != have {
			t.Fatalf("%s and %s compare as %d, their bytes %x and %x as %d", a, b, want, x, y, have)
		}
		if len(x) != len(y) && (bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x)) {
			t.Fatalf("of %s and %s one form begins with the other: %x and %x", a, b, x, y)
		}
	})
}
