package lens

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A number is an int, a long, a double or a decimal, as its writer chose. JavaScript writes 5 as an
// int or a double, and a whole number beyond 32 bits as a double. For convert, values of these
// types are equal if they are the same number.

// plainNumber returns the plain form of a number: an int if it is whole and fits, else a double if
// one is exactly equal, else a long or a decimal. JavaScript writes numbers in this form. -0 is a
// double.
func plainNumber(t valueType, val []byte) (valueType, []byte) {
	switch t {
	case tLong, tDouble:
		n, ok := whole(val, t)
		switch {
		// A fraction, a large number and -0 have no other plain form than double.
		case t == tDouble && (!ok || isMinusZero(val)):
		case int64(int32(n)) == n:
			return tInt, binary.LittleEndian.AppendUint32(nil, uint32(int32(n)))
		// The bound excludes 1<<63, to which the largest longs round. It does not fit into an
		// int64.
		case t == tLong && int64(float64(n)) == n && float64(n) < 1<<63:
			return tDouble, appendDouble(nil, float64(n))
		}
	case tDecimal:
		return plainDecimal(val)
	}
	return t, val
}

func isMinusZero(val []byte) bool { return binary.LittleEndian.Uint64(val) == 1<<63 }

// plainDecimal is plainNumber for a decimal. It accepts a double with the same shortest text: no
// double equals 0.1, but the double written 0.1 is the intended one.
func plainDecimal(val []byte) (valueType, []byte) {
	text, _ := textOf(val, tDecimal)
	if n, ok := wholeDecimal(val); ok {
		// A decimal -0 becomes the double -0 below.
		if n.IsInt64() && (n.Sign() != 0 || text[0] != '-') {
			return plainNumber(tLong, appendLong(nil, n.Int64()))
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return tDecimal, val
	}
	double := appendDouble(nil, f)
	// Accept the double only if it gives the same decimal again.
	again, ok := appendConverted(nil, double, tDouble, tDecimal)
	if !ok || !sameDecimal(val, again) {
		return tDecimal, val
	}
	return tDouble, double
}

// maxExponent limits the zeros that are written out. No long has more digits.
const maxExponent = 20

// wholeDecimal reads a decimal that is an integer of a moderate size.
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
		return nil, false // no decimal has that many trailing zeros
	}
	q, rest := n.QuoRem(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-exp)), nil), new(big.Int))
	return q, rest.Sign() == 0
}

func decimalOf(val []byte) bson.Decimal128 {
	return bson.NewDecimal128(binary.LittleEndian.Uint64(val[8:]), binary.LittleEndian.Uint64(val))
}

// sameDecimal reports whether two decimals are the same number, whatever their trailing zeros.
func sameDecimal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, expX, errX := decimalOf(a).BigInt()
	y, expY, errY := decimalOf(b).BigInt()
	if errX != nil || errY != nil {
		return decimalOf(a).String() == decimalOf(b).String() // NaN and the infinities
	}
	// Zeros differ by sign only. The top bit of the last byte is the sign.
	if x.Sign() == 0 || y.Sign() == 0 {
		return x.Sign() == y.Sign() && (a[15]^b[15])&0x80 == 0
	}
	return trimmed(x, &expX).Cmp(trimmed(y, &expY)) == 0 && expX == expY
}

// trimmed removes the trailing zeros of a number.
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

// numeric reports whether a value may be a lens's number.
func numeric(t bson.Type) bool {
	switch t {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return true
	default:
		return false
	}
}

// fromNumber converts a number of any type to the type to. It refuses a value that would become
// another number.
func fromNumber(t valueType, val []byte, to valueType) ([]byte, error) {
	// Compare plain forms: the same number must come back, not the same type.
	plain, p := plainNumber(t, val)
	switch {
	case to == tString:
		s := numberText(plain, p)
		if again, q, ok := parseNumber(s); !ok || again != plain || !bytes.Equal(p, q) {
			return nil, errInexact
		}
		return appendString(nil, s), nil
	case t == to:
		return val, nil // keeps trailing zeros
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
		// Write all digits: the shortest text of a large double is the decimal of another number.
		out, ok = appendParsed(nil, strconv.FormatInt(n, 10), tDecimal)
	}
	if !ok {
		return nil, errInexact
	}
	// Convert back, to refuse every number that would change.
	again, q, ok := toNumber(to, out)
	if !ok || again != plain || !bytes.Equal(p, q) {
		return nil, errInexact
	}
	return out, nil
}

// toNumber converts a value of another type to a plain number.
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

// numberText returns the text of a plain number, with all digits of a whole one.
func numberText(t valueType, val []byte) string {
	if n, ok := whole(val, t); ok && !(t == tDouble && isMinusZero(val)) {
		return strconv.FormatInt(n, 10)
	}
	s, _ := textOf(val, t)
	return s
}

// parseNumber parses the text of a number to its plain form.
func parseNumber(s string) (valueType, []byte, bool) {
	// -0 is a double: an int has no negative zero.
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		t, p := plainNumber(tLong, appendLong(nil, n))
		return t, p, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		double := appendDouble(nil, f)
		// Another spelling of a double may be a decimal with more digits.
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
