package memstore

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// rank is the place of a type in the order of BSON values: all numbers are one type,
// and so are strings and symbols.
func rank(t bson.Type) int {
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
	default: // TypeMaxKey
		return 16
	}
}

// compareValues is the order of keys: by type, then by value, as MongoDB's simple
// collation has it. Values that a database regards as equal compare as equal.
func compareValues(a, b bson.RawValue) int {
	if c := cmp.Compare(rank(a.Type), rank(b.Type)); c != 0 {
		return c
	}
	switch a.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return compareNumbers(a, b)
	case bson.TypeString, bson.TypeSymbol:
		return strings.Compare(text(a), text(b))
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return compareDocs(bson.Raw(a.Value), bson.Raw(b.Value))
	case bson.TypeBinary:
		return compareBinary(a, b)
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

// text is the content of a string or symbol, whose encodings are alike.
func text(v bson.RawValue) string {
	if len(v.Value) < 5 {
		return ""
	}
	return string(v.Value[4 : len(v.Value)-1])
}

func compareBinary(a, b bson.RawValue) int {
	xs, x, _ := a.BinaryOK()
	ys, y, _ := b.BinaryOK()
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(xs, ys), bytes.Compare(x, y))
}

func compareDocs(a, b bson.Raw) int {
	xs, _ := a.Elements()
	ys, _ := b.Elements()
	for i := range min(len(xs), len(ys)) {
		x, y := xs[i], ys[i]
		c := cmp.Or(
			cmp.Compare(rank(x.Value().Type), rank(y.Value().Type)),
			strings.Compare(x.Key(), y.Key()),
			compareValues(x.Value(), y.Value()),
		)
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(xs), len(ys))
}

// number is a numeric value exactly: NaN and the infinities by class, all else as a
// fraction.
type number struct {
	class int // 0 NaN, 1 -Inf, 2 finite, 3 +Inf
	value *big.Rat
}

func compareNumbers(a, b bson.RawValue) int {
	// Keys are canonical, so nearly all numbers are int64.
	if x, ok := a.Int64OK(); ok {
		if y, ok := b.Int64OK(); ok {
			return cmp.Compare(x, y)
		}
	}
	x, y := numberOf(a), numberOf(b)
	if c := cmp.Compare(x.class, y.class); c != 0 || x.class != 2 {
		return c
	}
	return x.value.Cmp(y.value)
}

func numberOf(v bson.RawValue) number {
	switch v.Type {
	case bson.TypeInt32:
		n, _ := v.Int32OK()
		return number{2, new(big.Rat).SetInt64(int64(n))}
	case bson.TypeInt64:
		n, _ := v.Int64OK()
		return number{2, new(big.Rat).SetInt64(n)}
	case bson.TypeDouble:
		f, _ := v.DoubleOK()
		switch {
		case math.IsNaN(f):
			return number{class: 0}
		case math.IsInf(f, -1):
			return number{class: 1}
		case math.IsInf(f, 1):
			return number{class: 3}
		}
		return number{2, new(big.Rat).SetFloat64(f)}
	default:
		d, _ := v.Decimal128OK()
		switch {
		case d.IsNaN():
			return number{class: 0}
		case d.IsInf() != 0:
			return number{class: 2 + d.IsInf()}
		}
		digits, exp, err := d.BigInt()
		if err != nil {
			return number{class: 0}
		}
		scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil))
		value := new(big.Rat).SetInt(digits)
		if exp < 0 {
			return number{2, value.Quo(value, scale)}
		}
		return number{2, value.Mul(value, scale)}
	}
}
