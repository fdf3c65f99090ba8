package scalar

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
func plainNumber(t Type, val []byte) (Type, []byte) {
	switch t {
	case Long, Double:
		n, ok := Whole(val, t)
		switch {
		// A fraction, a large number and -0 have no other plain form than double.
		case t == Double && (!ok || IsMinusZero(val)):
		case int64(int32(n)) == n:
			return Int, binary.LittleEndian.AppendUint32(nil, uint32(int32(n)))
		// The bound excludes 1<<63, to which the largest longs round. It does not fit into an
		// int64.
		case t == Long && int64(float64(n)) == n && float64(n) < 1<<63:
			return Double, appendDouble(nil, float64(n))
		}
	case Decimal:
		return plainDecimal(val)
	}
	return t, val
}

// IsMinusZero reports whether a value of type double is -0.
func IsMinusZero(val []byte) bool { return binary.LittleEndian.Uint64(val) == 1<<63 }

// plainDecimal is plainNumber for a decimal. It accepts a double with the same shortest text: no
// double equals 0.1, but the double written 0.1 is the intended one.
func plainDecimal(val []byte) (Type, []byte) {
	text, _ := TextOf(val, Decimal)
	if n, ok := wholeDecimal(val); ok {
		// A decimal -0 becomes the double -0 below.
		if n.IsInt64() && (n.Sign() != 0 || text[0] != '-') {
			return plainNumber(Long, AppendLong(nil, n.Int64()))
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Decimal, val
	}
	double := appendDouble(nil, f)
	// Accept the double only if it gives the same decimal again.
	again, ok := AppendConverted(nil, double, Double, Decimal)
	if !ok || !sameDecimal(val, again) {
		return Decimal, val
	}
	return Double, double
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

// IsNumber reports whether values of a BSON type are of type Number: int, long, double or decimal.
func IsNumber(t bson.Type) bool {
	switch t {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return true
	default:
		return false
	}
}

// FromNumber converts a number of type t to the type to. It returns ErrInexact for a value that
// would come back as another number. The result may be val itself.
func FromNumber(t Type, val []byte, to Type) ([]byte, error) {
	// Compare plain forms: the same number must come back, not the same type.
	plain, p := plainNumber(t, val)
	switch {
	case to == String:
		s := numberText(plain, p)
		if again, q, ok := parseNumber(s); !ok || again != plain || !bytes.Equal(p, q) {
			return nil, ErrInexact
		}
		return AppendString(nil, s), nil
	case t == to:
		return val, nil // keeps trailing zeros
	case plain == to:
		return p, nil
	case plain == Double && IsMinusZero(p) && (to == Int || to == Long || to == Bool):
		plain, p = Int, make([]byte, 4)
		if to == Int {
			return p, nil
		}
	}
	out, ok := AppendConverted(nil, p, plain, to)
	if n, isWhole := Whole(p, plain); isWhole && to == Decimal && !(plain == Double && IsMinusZero(p)) {
		// Write all digits: the shortest text of a large double is the decimal of another number.
		out, ok = appendParsed(nil, strconv.FormatInt(n, 10), Decimal)
	}
	if !ok {
		return nil, ErrInexact
	}
	// Convert back, to refuse every number that would change.
	again, q, ok := ToNumber(to, out)
	if !ok || again != plain || !bytes.Equal(p, q) {
		return nil, ErrInexact
	}
	return out, nil
}

// ToNumber converts a value of another type to a number. It returns the number's type, which is the
// one that JavaScript writes if there is an exact one, and its bytes. It returns false for a string
// that is not the text of a number.
func ToNumber(from Type, val []byte) (Type, []byte, bool) {
	switch from {
	case String:
		t, p, ok := parseNumber(StringOf(val))
		return t, p, ok && numberText(t, p) == StringOf(val)
	case Bool:
		return Int, []byte{val[0], 0, 0, 0}, true
	}
	t, p := plainNumber(from, val)
	return t, p, true
}

// numberText returns the text of a plain number, with all digits of a whole one.
func numberText(t Type, val []byte) string {
	if n, ok := Whole(val, t); ok && !(t == Double && IsMinusZero(val)) {
		return strconv.FormatInt(n, 10)
	}
	s, _ := TextOf(val, t)
	return s
}

// parseNumber parses the text of a number to its plain form.
func parseNumber(s string) (Type, []byte, bool) {
	// -0 is a double: an int has no negative zero.
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		t, p := plainNumber(Long, AppendLong(nil, n))
		return t, p, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		double := appendDouble(nil, f)
		// Another spelling of a double may be a decimal with more digits.
		if text, _ := TextOf(double, Double); text == s || math.IsNaN(f) {
			return Double, double, true
		}
	}
	val, ok := appendParsed(nil, s, Decimal)
	if !ok {
		return "", nil, false
	}
	t, p := plainNumber(Decimal, val)
	return t, p, true
}
