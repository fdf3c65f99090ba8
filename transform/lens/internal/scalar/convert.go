package scalar

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Type is the name of a type in a lens. RFC3339 is a string with a time. Epoch and Millis are longs
// with a time, in seconds and milliseconds since 1970.
type Type string

const (
	String   Type = "string"
	Int      Type = "int"
	Long     Type = "long"
	Double   Type = "double"
	Decimal  Type = "decimal"
	Number   Type = "number" // int, long, double or decimal
	Bool     Type = "bool"
	ObjectID Type = "objectId"
	UUID     Type = "uuid"
	Date     Type = "date"
	RFC3339  Type = "rfc3339"
	Epoch    Type = "epoch"
	Millis   Type = "epochMillis"
)

// Types lists all types of a lens.
var Types = []Type{String, Int, Long, Double, Decimal, Number, Bool, ObjectID, UUID, Date, RFC3339, Epoch, Millis}

var (
	Numbers = []Type{Int, Long, Double, Decimal, Number}
	times   = []Type{Date, RFC3339, Epoch, Millis}
)

// Targets returns the types to which a lens may convert the type, in the order of Types.
func (t Type) Targets() []Type {
	var out []Type
	for _, to := range Types {
		if t.Convertible(to) {
			out = append(out, to)
		}
	}
	return out
}

// Convertible reports whether a lens may convert the type to another one. It is false for the type
// itself.
func (t Type) Convertible(to Type) bool {
	// A conversion to the same type would do nothing.
	if t == to {
		return false
	}
	// Times convert only among themselves. A plain number or string has no time.
	if slices.Contains(times, t) || slices.Contains(times, to) {
		return slices.Contains(times, t) && slices.Contains(times, to)
	}
	switch {
	case t == String || to == String:
		return true
	case slices.Contains(Numbers, t) && slices.Contains(Numbers, to):
		return true
	}
	// A bool converts to the integers 0 and 1.
	integer := func(t Type) bool { return t == Int || t == Long || t == Number }
	return t == Bool && integer(to) || integer(t) && to == Bool
}

// BSON returns the BSON type of the stored value. It returns 0 for Number, which has several.
func (t Type) BSON() bson.Type {
	switch t {
	case Int:
		return bson.TypeInt32
	case Long, Epoch, Millis:
		return bson.TypeInt64
	case Double:
		return bson.TypeDouble
	case Decimal:
		return bson.TypeDecimal128
	case Bool:
		return bson.TypeBoolean
	case ObjectID:
		return bson.TypeObjectID
	case UUID:
		return bson.TypeBinary
	case Date:
		return bson.TypeDateTime
	case Number:
		return 0 // no type of its own
	default:
		return bson.TypeString
	}
}

// TypeOf returns the first Type with a BSON type, or "" if there is none.
func TypeOf(t bson.Type) Type {
	for _, v := range Types {
		if v.BSON() == t {
			return v
		}
	}
	return ""
}

// ErrInexact means that the reverse of a conversion would not give the value again.
var ErrInexact = errors.New("the value cannot be converted so that the reverse restores it")

// Convert returns the converted value, in the editor's scratch memory. It returns ErrInexact for
// every value that would not come back bit for bit. It converts each result back to check this, so
// no rule of a type can be forgotten. For Number, use FromNumber and ToNumber.
func Convert(e *edit.Editor, val []byte, from, to Type) ([]byte, error) {
	at := len(e.Scratch)
	out, ok := AppendConverted(e.Scratch, val, from, to)
	if !ok {
		return nil, ErrInexact
	}
	// Convert back into the memory after the result. It is discarded afterwards.
	made := out[at:len(out):len(out)]
	again, ok := AppendConverted(out, made, to, from)
	if !ok || !bytes.Equal(again[len(out):], val) {
		return nil, ErrInexact
	}
	e.Scratch = out
	return made, nil
}

// AppendConverted appends the converted value to dst. It returns false if the value has no
// counterpart. It does not check that the value would come back; Convert does.
func AppendConverted(dst, val []byte, from, to Type) ([]byte, bool) {
	switch {
	case slices.Contains(times, from):
		ms, ok := readTime(val, from)
		if !ok {
			return nil, false
		}
		return appendTime(dst, ms, to)
	case to == String:
		s, ok := TextOf(val, from)
		if !ok {
			return nil, false
		}
		return AppendString(dst, s), true
	case from == String:
		return appendParsed(dst, StringOf(val), to)
	}
	// Convert whole numbers directly, and all others by their text, which is exact.
	if n, ok := Whole(val, from); ok {
		switch to {
		case Int:
			return binary.LittleEndian.AppendUint32(dst, uint32(int32(n))), int64(int32(n)) == n
		case Long:
			return AppendLong(dst, n), true
		case Double:
			return appendDouble(dst, float64(n)), true
		case Bool:
			return append(dst, byte(n)), n == 0 || n == 1
		}
	}
	s, ok := TextOf(val, from)
	if !ok {
		return nil, false
	}
	return appendParsed(dst, s, to)
}

// Whole returns the value of an int, long, double or bool as an integer. It returns false for other
// types, and for a double that is no whole number of 64 bits.
func Whole(val []byte, t Type) (int64, bool) {
	switch t {
	case Int:
		return int64(int32(binary.LittleEndian.Uint32(val))), true
	case Long:
		return int64(binary.LittleEndian.Uint64(val)), true
	case Bool:
		return int64(val[0]), true
	case Double:
		f := math.Float64frombits(binary.LittleEndian.Uint64(val))
		// The bounds are those of int64: converting a float beyond them is undefined.
		return int64(f), f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63
	default:
		return 0, false
	}
}

// TextOf returns the text of a value, from which a conversion gives the value again. It returns
// false for a type without such a text.
func TextOf(val []byte, t Type) (string, bool) {
	switch t {
	case Int, Long:
		n, _ := Whole(val, t)
		return strconv.FormatInt(n, 10), true
	case Double:
		return strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(val)), 'g', -1, 64), true
	case Decimal:
		return bson.NewDecimal128(binary.LittleEndian.Uint64(val[8:]), binary.LittleEndian.Uint64(val)).String(), true
	case Bool:
		return strconv.FormatBool(val[0] == 1), true
	case ObjectID:
		return hex.EncodeToString(val), true
	case UUID:
		// Binary data of another subtype has no UUID text.
		s, err := IDUUID.Read(bson.RawValue{Type: bson.TypeBinary, Value: val}, ReadExact)
		return s, err == nil
	case String:
		return StringOf(val), true
	default:
		return "", false
	}
}

func appendParsed(dst []byte, s string, to Type) ([]byte, bool) {
	switch to {
	case Int:
		n, err := strconv.ParseInt(s, 10, 32)
		return binary.LittleEndian.AppendUint32(dst, uint32(int32(n))), err == nil
	case Long:
		n, err := strconv.ParseInt(s, 10, 64)
		return AppendLong(dst, n), err == nil
	case Double:
		f, err := strconv.ParseFloat(s, 64)
		return appendDouble(dst, f), err == nil
	case Decimal:
		d, err := bson.ParseDecimal128(s)
		hi, lo := d.GetBytes()
		dst = binary.LittleEndian.AppendUint64(dst, lo)
		return binary.LittleEndian.AppendUint64(dst, hi), err == nil
	case Bool:
		switch s {
		// 1 and 0 are the texts of numbers. convert refuses a spelling that would not come back.
		case "true", "1":
			return append(dst, 1), true
		case "false", "0":
			return append(dst, 0), true
		}
		return nil, false
	case UUID:
		if IDUUID.Check(s) != nil {
			return nil, false
		}
		_, dst = IDUUID.AppendTo(dst, s)
		return dst, true
	case ObjectID:
		b, err := hex.DecodeString(s)
		return append(dst, b...), err == nil && len(b) == 12
	default:
		return nil, false
	}
}

// StringOf returns the text of a string value. The Editor checks the form of val when it opens a
// document. The driver accepts a string without its final zero elsewhere; it counts as empty.
func StringOf(val []byte) string {
	const least = 4 + 1
	if len(val) < least {
		return ""
	}
	return string(val[4 : len(val)-1])
}

// AppendString appends the string value of s to dst.
func AppendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)+1))
	return append(append(dst, s...), 0)
}

func appendDouble(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// AppendLong appends a long, or a date in milliseconds since 1970, to dst.
func AppendLong(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// Times are converted by their milliseconds since 1970. The text has milliseconds only if they are
// not zero: 2026-11-20T10:00:00Z, 2026-11-20T10:00:00.250Z.
const (
	layoutSeconds = "2006-01-02T15:04:05Z"
	layoutMillis  = "2006-01-02T15:04:05.000Z"
)

func readTime(val []byte, t Type) (ms int64, ok bool) {
	switch t {
	case Date, Millis:
		return int64(binary.LittleEndian.Uint64(val)), true
	case Epoch:
		s := int64(binary.LittleEndian.Uint64(val))
		// The division detects an overflow.
		return s * 1000, s*1000/1000 == s
	default:
		at, err := time.Parse(time.RFC3339Nano, StringOf(val))
		return at.UnixMilli(), err == nil
	}
}

func appendTime(dst []byte, ms int64, t Type) ([]byte, bool) {
	switch t {
	case Date, Millis:
		return AppendLong(dst, ms), true
	case Epoch:
		return AppendLong(dst, ms/1000), ms%1000 == 0
	default:
		layout := layoutSeconds
		if ms%1000 != 0 {
			layout = layoutMillis
		}
		return AppendString(dst, time.UnixMilli(ms).UTC().Format(layout)), true
	}
}

// JoinTypes returns the names of types for an error, separated by commas.
func JoinTypes(ts []Type) string {
	ss := make([]string, len(ts))
	for i, t := range ts {
		ss[i] = string(t)
	}
	return strings.Join(ss, ", ")
}

// StringValue returns a string as a BSON value.
func StringValue(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: AppendString(nil, s)}
}
