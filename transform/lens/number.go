package lens

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A number is an int, a long, a double or a decimal, whichever its writer took: JavaScript
// writes 5 as an int or as a double, and a whole number beyond 32 bits as a double. Values
// of these types that are the same number are one to convert.

// plainNumber is the form that a number is given: an int where it is whole and fits, else a
// double where one has it to the last digit, else a long or a decimal. So JavaScript would
// write it; -0 is a double then.
func plainNumber(t valueType, val []byte) (valueType, []byte) {
	switch t {
	case tLong, tDouble:
		n, ok := whole(val, t)
		switch {
		case t == tDouble && (!ok || isMinusZero(val)):
		case int64(int32(n)) == n:
			return tInt, binary.LittleEndian.AppendUint32(nil, uint32(int32(n)))
		case t == tLong && int64(float64(n)) == n && float64(n) < 1<<63:
			return tDouble, appendDouble(nil, float64(n))
		}
	case tDecimal:
		return plainDecimal(val)
	}
	return t, val
}

func isMinusZero(val []byte) bool { return binary.LittleEndian.Uint64(val) == 1<<63 }

// plainDecimal is plainNumber for a decimal. A double has it where both are written alike:
// 0.1 is no sum of powers of two, but it is the double 0.1 that was meant.
func plainDecimal(val []byte) (valueType, []byte) {
	text, _ := textOf(val, tDecimal)
	if n, ok := wholeDecimal(val); ok {
		if n.IsInt64() && (n.Sign() != 0 || text[0] != '-') {
			return plainNumber(tLong, appendLong(nil, n.Int64()))
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return tDecimal, val
	}
	double := appendDouble(nil, f)
	again, ok := appendConverted(nil, double, tDouble, tDecimal)
	if !ok || !sameDecimal(val, again) {
		return tDecimal, val
	}
	return tDouble, double
}

// maxExponent bounds the zeros that are written out: no long has as many.
const maxExponent = 20

// wholeDecimal reads a decimal that is an integer, and not too large a one.
func wholeDecimal(val []byte) (*big.Int, bool) {
	n, exp, err := decimalOf(val).BigInt()
	if err != nil || exp > maxExponent {
		return nil, false
	}
	if exp >= 0 {
		return n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exp)), nil)), true
	}
	if n.Sign() == 0 {
		return n, true
	}
	if exp < -2*maxExponent {
		return nil, false // no decimal has that many digits to end in zeros
	}
	q, rest := n.QuoRem(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-exp)), nil), new(big.Int))
	return q, rest.Sign() == 0
}

func decimalOf(val []byte) bson.Decimal128 {
	return bson.NewDecimal128(binary.LittleEndian.Uint64(val[8:]), binary.LittleEndian.Uint64(val))
}

// sameDecimal reports whether two decimals are one number, with however many zeros.
func sameDecimal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, expX, errX := decimalOf(a).BigInt()
	y, expY, errY := decimalOf(b).BigInt()
	if errX != nil || errY != nil {
		return decimalOf(a).String() == decimalOf(b).String() // NaN and the infinities
	}
	if x.Sign() == 0 || y.Sign() == 0 {
		return x.Sign() == y.Sign() && (a[15]^b[15])&0x80 == 0
	}
	return trimmed(x, &expX).Cmp(trimmed(y, &expY)) == 0 && expX == expY
}

// trimmed takes the zeros off that a number ends in.
func trimmed(n *big.Int, exp *int) *big.Int {
	ten, rest := big.NewInt(10), new(big.Int)
	for {
		q, r := new(big.Int).QuoRem(n, ten, rest)
		if r.Sign() != 0 {
			return n
		}
		n = q
		*exp++
	}
}

// numeric reports whether a value may stand where a lens says number.
func numeric(t bson.Type) bool {
	switch t {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return true
	default:
		return false
	}
}

// fromNumber converts a number of any type to one of the type to. It refuses what would be
// another number there.
func fromNumber(t valueType, val []byte, to valueType) ([]byte, error) {
	plain, p := plainNumber(t, val)
	switch {
	case to == tString:
		s := numberText(plain, p)
		if again, q, ok := parseNumber(s); !ok || again != plain || !bytes.Equal(p, q) {
			return nil, errInexact
		}
		return appendString(nil, s), nil
	case t == to:
		return val, nil // it is kept to the last zero
	case plain == to:
		return p, nil
	case plain == tDouble && isMinusZero(p) && (to == tInt || to == tLong || to == tBool):
		plain, p = tInt, make([]byte, 4)
		if to == tInt {
			return p, nil
		}
	}
	out, ok := appendConverted(nil, p, plain, to)
	if n, isWhole := whole(p, plain); isWhole && to == tDecimal && !(plain == tDouble && isMinusZero(p)) {
		// All digits: the shortest text of a large double is that of another number.
		out, ok = appendParsed(nil, strconv.FormatInt(n, 10), tDecimal)
	}
	if !ok {
		return nil, errInexact
	}
	again, q, ok := toNumber(to, out)
	if !ok || again != plain || !bytes.Equal(p, q) {
		return nil, errInexact
	}
	return out, nil
}

// toNumber makes a number of a value of another type.
func toNumber(from valueType, val []byte) (valueType, []byte, bool) {
	switch from {
	case tString:
		t, p, ok := parseNumber(stringOf(val))
		return t, p, ok && numberText(t, p) == stringOf(val)
	case tBool:
		return tInt, []byte{val[0], 0, 0, 0}, true
	}
	t, p := plainNumber(from, val)
	return t, p, true
}

// numberText writes a plain number: a whole one with all its digits.
func numberText(t valueType, val []byte) string {
	if n, ok := whole(val, t); ok && !(t == tDouble && isMinusZero(val)) {
		return strconv.FormatInt(n, 10)
	}
	s, _ := textOf(val, t)
	return s
}

// parseNumber reads a plain number.
func parseNumber(s string) (valueType, []byte, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		t, p := plainNumber(tLong, appendLong(nil, n))
		return t, p, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		double := appendDouble(nil, f)
		if text, _ := textOf(double, tDouble); text == s || math.IsNaN(f) {
			return tDouble, double, true
		}
	}
	val, ok := appendParsed(nil, s, tDecimal)
	if !ok {
		return "", nil, false
	}
	t, p := plainNumber(tDecimal, val)
	return t, p, true
}

// forms are those of a number, and of a decimal that is made of one: 5 and 5.00 are the same.
// So are dates of one second with rounding.
func (o *convert) forms() []form {
	if o.rounding && o.to == tDate || o.to == tNumber || o.from == tNumber && o.to == tDecimal {
		return []form{{fields: []holding{{path: o.field, by: o}}}}
	}
	return nil
}

// applyNumber is apply from or to a number.
func (o *convert) applyNumber(n *node, i int) error {
	el := &n.elems[i]
	if o.from != tNumber {
		if el.typ != o.from.bson() {
			return refuse(o.field, "is of type %s, not %s", TypeName(el.typ), o.from)
		}
		t, val, ok := toNumber(o.from, el.val)
		if !ok {
			return refuse(o.field, "is %s (%s): %w", show(el.typ, el.val), TypeName(el.typ), errInexact)
		}
		n.set(i, t.bson(), val)
		return nil
	}
	if !numeric(el.typ) {
		return refuse(o.field, "is of type %s, not a number", TypeName(el.typ))
	}
	val, err := fromNumber(typeOf(el.typ), el.val, o.to)
	if err != nil {
		return refuse(o.field, "is %s (%s): %w", show(el.typ, el.val), TypeName(el.typ), err)
	}
	n.set(i, o.to.bson(), val)
	return nil
}

var _ former = (*convert)(nil)
