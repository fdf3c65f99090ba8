package record_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
)

func value(t interface{ Fatalf(string, ...any) }, v any) bson.RawValue {
	typ, b, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatalf("marshal %v: %v", v, err)
	}
	return bson.RawValue{Type: typ, Value: b}
}

func key(t interface{ Fatalf(string, ...any) }, v any) record.Key {
	k, err := record.KeyOf(value(t, v))
	if err != nil {
		t.Fatalf("key of %v: %v", v, err)
	}
	return k
}

func decimal(t interface{ Fatalf(string, ...any) }, s string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		t.Fatalf("decimal %s: %v", s, err)
	}
	return d
}

// spellings are the ways to write one integer that a database regards as equal.
func spellings(t interface{ Fatalf(string, ...any) }, n int64) []any {
	out := []any{n, decimal(t, fmt.Sprint(n)), decimal(t, fmt.Sprintf("%d.000", n))}
	if int64(int32(n)) == n {
		out = append(out, int32(n))
	}
	if f := float64(n); f < 1<<63 && int64(f) == n {
		out = append(out, f)
	}
	return out
}

func integers() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64(), rapid.Int64Range(-20, 20),
		rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1, -(1<<53 + 1), math.MaxInt32, math.MaxInt32 + 1, 1_000_000_000}),
	)
}

// wrap puts a value at some depth of a document.
func wrap(v any, depth int) any {
	for range depth {
		v = bson.D{{Key: "a", Value: "x"}, {Key: "n", Value: bson.A{v, true}}}
	}
	return v
}

func TestEqualNumbersHaveEqualKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := integers().Draw(t, "n")
		depth := rapid.IntRange(0, 3).Draw(t, "depth")
		forms := spellings(t, n)
		// As an _id cannot be an array, nothing is lost by wrapping at any depth.
		want := key(t, wrap(forms[0], depth))
		for _, form := range forms[1:] {
			if have := key(t, wrap(form, depth)); have != want {
				t.Fatalf("%T %v at depth %d: key %x, want %x", form, form, depth, have, want)
			}
		}
	})
}

func TestDifferentNumbersHaveDifferentKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := integers().Draw(t, "m"), integers().Draw(t, "n")
		if m == n {
			return
		}
		for _, a := range spellings(t, m) {
			for _, b := range spellings(t, n) {
				if key(t, a) == key(t, b) {
					t.Fatalf("%T %v and %T %v have one key", a, a, b, b)
				}
			}
		}
	})
}

// A double and the decimal that writes it out exactly are equal; so are decimals that
// differ in trailing zeros.
func TestFractionsAndDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// k/64 has at most 6 decimal places, so that a decimal holds it exactly.
		k := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "k")
		exact := new(big.Rat).SetFrac64(k, 64)
		f, _ := exact.Float64()
		want := key(t, f)
		for places := 6; places < 10; places++ {
			if have := key(t, decimal(t, exact.FloatString(places))); have != want {
				t.Fatalf("%v with %d places: key %x, want %x", f, places, have, want)
			}
		}
	})
	for _, tt := range []struct {
		a, b  any
		equal bool
	}{
		{0.0, math.Copysign(0, -1), true},
		{int32(0), math.Copysign(0, -1), true},
		{decimal(t, "-0"), int64(0), true},
		{decimal(t, "0E+10"), int64(0), true},
		{math.NaN(), math.Float64frombits(0xFFF8000000000001), true},
		{math.NaN(), decimal(t, "NaN"), true},
		{math.Inf(1), decimal(t, "Infinity"), true},
		{math.Inf(-1), decimal(t, "-Infinity"), true},
		{math.Inf(1), math.Inf(-1), false},
		{decimal(t, "1.10"), decimal(t, "1.1"), true},
		{decimal(t, "1E+3"), int32(1000), true},
		{decimal(t, "1E+30"), decimal(t, "10E+29"), true},
		{decimal(t, "1E+6111"), decimal(t, "1E+6110"), false},
		{decimal(t, "0.1"), 0.1, false}, // the double is not a tenth
		{1e300, decimal(t, "1E+300"), false},
		{math.Nextafter(1, 2), int32(1), false},
		{float64(1 << 63), int64(math.MaxInt64), false},
		{float64(-1 << 63), int64(math.MinInt64), true},
		{float64(1 << 53), int64(1<<53 + 1), false},
		{int32(1), "1", false},
		{int32(1), true, false},
		{bson.DateTime(1), int64(1), false},
	} {
		if equal := key(t, tt.a) == key(t, tt.b); equal != tt.equal {
			t.Errorf("%T %v and %T %v: equal keys %t, want %t", tt.a, tt.a, tt.b, tt.b, equal, tt.equal)
		}
	}
}

func TestNestedDocuments(t *testing.T) {
	one := key(t, bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: bson.D{{Key: "c", Value: 2.0}}}})
	same := key(t, bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: bson.D{{Key: "c", Value: decimal(t, "2")}}}})
	if one != same {
		t.Errorf("equal documents: %x and %x", one, same)
	}
	for _, other := range []any{
		bson.D{{Key: "b", Value: bson.D{{Key: "c", Value: int32(2)}}}, {Key: "a", Value: int32(1)}}, // order counts
		bson.D{{Key: "a", Value: int32(1)}},
		bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: bson.D{{Key: "d", Value: int32(2)}}}},
		bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: bson.A{int32(2)}}},
	} {
		if key(t, other) == one {
			t.Errorf("%v has the key of another document", other)
		}
	}
}

// The value of a key has that key, and can stand in a document.
func TestKeyValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Map(integers(), func(n int64) any { return n }),
			rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return bson.Binary{Data: b} }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.SampledFrom([]any{bson.Null{}, bson.MinKey{}, bson.MaxKey{}, bson.ObjectID{1}, bson.Timestamp{T: 1, I: 2}, bson.DateTime(9)}),
		).Draw(t, "v")
		k := key(t, wrap(v, rapid.IntRange(0, 2).Draw(t, "depth")))
		again, err := record.KeyOf(k.Value())
		if err != nil || again != k {
			t.Fatalf("key %x, of its value %x, %v", k, again, err)
		}
		b, err := bson.Marshal(bson.D{{Key: "_id", Value: k.Value()}})
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		if of, err := record.KeyOfDoc(b); err != nil || of != k {
			t.Fatalf("key of the document %x, %v", of, err)
		}
		if k.String() == "" && v != "" {
			t.Fatalf("key %x has no form for people", k)
		}
	})
}

func TestStringKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		k := record.StringKey(s)
		if name, ok := k.Name(); !ok || name != s {
			t.Fatalf("name %q, %t", name, ok)
		}
		if k != key(t, s) || k.String() != s {
			t.Fatalf("key %x as %q", k, k.String())
		}
	})
	if _, ok := key(t, int32(1)).Name(); ok {
		t.Error("a number has a name")
	}
}

func TestNoKey(t *testing.T) {
	if _, err := record.KeyOf(bson.RawValue{}); err == nil {
		t.Error("nothing has a key")
	}
	if b, err := bson.Marshal(bson.D{{Key: "a", Value: 1}}); err != nil {
		t.Fatal(err)
	} else if _, err := record.KeyOfDoc(b); err == nil {
		t.Error("a document without _id has a key")
	}
	for _, typ := range []bson.Type{bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128, bson.TypeEmbeddedDocument} {
		if _, err := record.KeyOf(bson.RawValue{Type: typ, Value: []byte{1}}); err == nil {
			t.Errorf("a truncated %s has a key", typ)
		}
	}
	var none record.Key
	if _, ok := none.Name(); ok || none.String() == "" || none.Value().Type != 0 {
		t.Error("the zero key is a key")
	}
}

// TestLongKeys: a key over the limit is refused, and people are shown the beginning of a long
// one, distinguished from others that begin alike.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	of := func(n int, end string) record.Key { return record.StringKey(strings.Repeat("x", n) + end) }
	doc := func(n int) record.Key {
		id, err := bson.Marshal(bson.D{{Key: "b", Value: make([]byte, n)}})
		if err != nil {
			t.Fatal(err)
		}
		return record.Key(append([]byte{byte(bson.TypeEmbeddedDocument)}, id...))
	}
	if err := record.CheckKey(of(record.MaxKey-6, "")); err != nil {
		t.Errorf("a key of the greatest length: %v", err)
	}
	for _, k := range []record.Key{of(record.MaxKey-5, ""), of(9<<20, ""), doc(record.MaxKey)} {
		if err := record.CheckKey(k); !errors.Is(err, record.ErrLongKey) {
			t.Errorf("a key of %d bytes: %v", len(k), err)
		}
	}
	shown := map[string]bool{}
	for _, k := range []record.Key{of(2000, "a"), of(2000, "b"), of(9<<20, "a"), of(9<<20, "b"), doc(2000), doc(1 << 20)} {
		text := k.String()
		if len(text) > 150 || shown[text] {
			t.Errorf("a key of %d bytes is shown as %q", len(k), text)
		}
		shown[text] = true
	}
	if got := of(1000, "").String(); len(got) != 1000 {
		t.Errorf("an ordinary key is cut: %q", got)
	}
}
