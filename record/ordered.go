package record

import (
	"encoding/binary"
	"math"
	"math/big"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// AppendOrdered appends the ordered form of a value to dst. The bytewise order of these forms is
// the order of CompareValues. The form of one value is never a prefix of another value's form.
func AppendOrdered(dst []byte, v bson.RawValue) []byte {
	dst = append(dst, orderedRank(v.Type))
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return orderedNumber(dst, v)
	case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript:
		return append(AppendOrderedText(dst, textOf(v.Value)), 0, 0)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return orderedDocument(dst, bson.Raw(v.Value))
	case bson.TypeCodeWithScope:
		code, scope, _ := codeAndScope(v.Value)
		return orderedDocument(append(AppendOrderedText(dst, textOf(code)), 0, 0), scope)
	case bson.TypeDBPointer:
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(v.Value))), v.Value...)
	case bson.TypeBinary:
		// Shorter binary values come first, so the length leads.
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Value)))
		return append(dst, v.Value[min(4, len(v.Value)):]...)
	case bson.TypeDateTime:
		n, _ := v.DateTimeOK()
		// Flip the sign bit, so that negative times come before positive ones.
		return binary.BigEndian.AppendUint64(dst, uint64(n)^(1<<63))
	case bson.TypeTimestamp:
		t, i, _ := v.TimestampOK()
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, t), i)
	default:
		return append(dst, v.Value...)
	}
}

func orderedDocument(dst []byte, doc bson.Raw) []byte {
	elems, _ := doc.Elements() // keys are checked when they are made
	for _, e := range elems {
		// The type comes before the name, because CompareValues compares it first.
		dst = append(dst, orderedRank(e.Value().Type))
		dst = append(dst, e.Key()...)
		dst = AppendOrdered(append(dst, 0), e.Value())
	}
	return append(dst, 0)
}

// orderedRank returns the rank of a type as a byte. It is never zero, because zero ends a document.
func orderedRank(t bson.Type) byte { return byte(typeRank(t) + 1) }

// OrderedStrings is the first byte of the ordered form of every string (AppendOrdered).
var OrderedStrings = orderedRank(bson.TypeString)

// AppendOrderedText appends text as it stands in the ordered form of a string, without the first
// byte and without the end of that form. So OrderedStrings and the result are a prefix of the form
// of each string that begins with text. It escapes zero bytes, because two zeros end a string.
func AppendOrderedText(dst, text []byte) []byte {
	for _, c := range text {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, 0xff)
		}
	}
	return dst
}

// An ordered number consists of its sign, its binary exponent and the bits after the first one.
// Integers and doubles have at most 64 such bits and are exact. A decimal may have endless bits.
// This many bits distinguish it from every other decimal. They also distinguish it from doubles,
// except for coincidences, of which no example is known.
const (
	mantissaBits = 256
	numberSize   = 1 + 4 + mantissaBits/8
)

const (
	signNaN = iota
	signMinusInf
	signNegative
	signZero
	signPositive
	signInf
)

func orderedNumber(dst []byte, v bson.RawValue) []byte {
	var sign byte
	var exact *big.Float
	switch x := numberOf(v); {
	case x.exact != nil && x.exact.Sign() == 0:
		sign = signZero
	case x.exact != nil:
		exact = new(big.Float).SetMode(big.ToZero).SetPrec(mantissaBits + 1).SetRat(x.exact)
		sign = signPositive
		if x.exact.Sign() < 0 {
			sign = signNegative
		}
	case math.IsInf(x.special, -1):
		sign = signMinusInf
	case math.IsInf(x.special, 1):
		sign = signInf
	default:
		sign = signNaN
	}
	dst = append(dst, sign)
	at := len(dst)
	dst = append(dst, make([]byte, numberSize-1)...)
	if exact == nil {
		return dst
	}
	exp := exact.MantExp(nil)
	// Shift the exponent, so that negative ones come first.
	binary.BigEndian.PutUint32(dst[at:], uint32(exp+1<<20))
	// The first bit is always one. Leaving it out makes room for one more bit.
	whole, _ := new(big.Float).SetMantExp(exact.Abs(exact), mantissaBits+1-exp).Int(nil)
	whole.SetBit(whole, mantissaBits, 0).FillBytes(dst[at+4:])
	// A larger magnitude means a smaller negative number, so invert the order.
	if sign == signNegative {
		for i := at; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}
