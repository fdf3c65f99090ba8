package record

import (
	"bytes"
	"cmp"
	"math"
	"math/big"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// typeRank returns the place of a type in the order of BSON types. Types that compare as one share
// a rank.
func typeRank(t bson.Type) int {
	switch t {
	case bson.TypeMinKey:
		return 0
	case bson.TypeUndefined:
		return 1
	case bson.TypeNull:
		return 2
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return 3
	case bson.TypeString, bson.TypeSymbol:
		return 4
	case bson.TypeEmbeddedDocument:
		return 5
	case bson.TypeArray:
		return 6
	case bson.TypeBinary:
		return 7
	case bson.TypeObjectID:
		return 8
	case bson.TypeBoolean:
		return 9
	case bson.TypeDateTime:
		return 10
	case bson.TypeTimestamp:
		return 11
	case bson.TypeRegex:
		return 12
	case bson.TypeDBPointer:
		return 13
	case bson.TypeJavaScript:
		return 14
	case bson.TypeCodeWithScope:
		return 15
	default: // MaxKey
		return 16
	}
}

// CompareValues compares two keys by type and then by value, in the order of MongoDB's simple
// collation and its _id index. Values that a database regards as equal compare as equal.
func CompareValues(a, b bson.RawValue) int {
	if c := cmp.Compare(typeRank(a.Type), typeRank(b.Type)); c != 0 {
		return c
	}
	switch a.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return compareNumbers(a, b)
	case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript:
		return bytes.Compare(textOf(a.Value), textOf(b.Value))
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return compareDocuments(bson.Raw(a.Value), bson.Raw(b.Value))
	case bson.TypeBinary:
		// By length, then subtype, then bytes. That is the layout of the value, but its length is
		// little-endian and cannot be compared as bytes.
		if c := cmp.Compare(len(a.Value), len(b.Value)); c != 0 {
			return c
		}
		return bytes.Compare(a.Value[min(4, len(a.Value)):], b.Value[min(4, len(b.Value)):])
	case bson.TypeDBPointer:
		// By length, then collection, then id.
		return cmp.Or(cmp.Compare(len(a.Value), len(b.Value)), bytes.Compare(a.Value, b.Value))
	case bson.TypeCodeWithScope:
		x, inX, _ := codeAndScope(a.Value)
		y, inY, _ := codeAndScope(b.Value)
		return cmp.Or(bytes.Compare(textOf(x), textOf(y)), compareDocuments(inX, inY))
	case bson.TypeDateTime:
		x, _ := a.DateTimeOK()
		y, _ := b.DateTimeOK()
		return cmp.Compare(x, y)
	case bson.TypeTimestamp:
		xt, xi, _ := a.TimestampOK()
		yt, yi, _ := b.TimestampOK()
		return cmp.Or(cmp.Compare(xt, yt), cmp.Compare(xi, yi))
	default:
		return bytes.Compare(a.Value, b.Value)
	}
}

// textOf returns a BSON string value without its length and final zero.
func textOf(v []byte) []byte {
	if len(v) < 5 {
		return nil
	}
	return v[4 : len(v)-1]
}

func compareDocuments(a, b bson.Raw) int {
	x, _ := a.Elements()
	y, _ := b.Elements()
	for i := range min(len(x), len(y)) {
		// The server compares the types before the field names, so { b: 1 } sorts before { a: "x"
		// }.
		v, w := x[i].Value(), y[i].Value()
		c := cmp.Or(
			cmp.Compare(typeRank(v.Type), typeRank(w.Type)),
			cmp.Compare(x[i].Key(), y[i].Key()),
			CompareValues(v, w))
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// number is a numeric value. It is exact, unless it is NaN or an infinity.
type number struct {
	special float64 // NaN or an infinity, if exact is nil
	exact   *big.Rat
}

func compareNumbers(a, b bson.RawValue) int {
	// Avoid big.Rat for the most common type of numeric keys.
	if a.Type == bson.TypeInt64 && b.Type == bson.TypeInt64 {
		x, _ := a.Int64OK()
		y, _ := b.Int64OK()
		return cmp.Compare(x, y)
	}
	x, y := numberOf(a), numberOf(b)
	if x.exact != nil && y.exact != nil {
		return x.exact.Cmp(y.exact)
	}
	// cmp puts NaN first, like the server.
	return cmp.Compare(x.special, y.special)
}

func numberOf(v bson.RawValue) number {
	switch v.Type {
	case bson.TypeInt32:
		n, _ := v.Int32OK()
		return number{exact: new(big.Rat).SetInt64(int64(n))}
	case bson.TypeInt64:
		n, _ := v.Int64OK()
		return number{exact: new(big.Rat).SetInt64(n)}
	case bson.TypeDouble:
		f, _ := v.DoubleOK()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return number{special: f}
		}
		return number{exact: new(big.Rat).SetFloat64(f)}
	default:
		d, _ := v.Decimal128OK()
		switch {
		case d.IsNaN():
			return number{special: math.NaN()}
		case d.IsInf() != 0:
			return number{special: math.Inf(d.IsInf())}
		}
		digits, exp, err := d.BigInt()
		if err != nil {
			return number{special: math.NaN()}
		}
		// A float64 would round the decimal, and different keys would compare as equal.
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
		n := new(big.Rat).SetInt(digits)
		if exp < 0 {
			return number{exact: n.Quo(n, new(big.Rat).SetInt(scale))}
		}
		return number{exact: n.Mul(n, new(big.Rat).SetInt(scale))}
	}
}
