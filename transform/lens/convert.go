package lens

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

// valueType is the name of a type in a lens. rfc3339 is a string with a time; epoch and epochMillis
// are longs with a time.
type valueType string

const (
	tString   valueType = "string"
	tInt      valueType = "int"
	tLong     valueType = "long"
	tDouble   valueType = "double"
	tDecimal  valueType = "decimal"
	tNumber   valueType = "number" // int, long, double or decimal
	tBool     valueType = "bool"
	tObjectID valueType = "objectId"
	tUUID     valueType = "uuid"
	tDate     valueType = "date"
	tRFC3339  valueType = "rfc3339"
	tEpoch    valueType = "epoch"
	tMillis   valueType = "epochMillis"
)

var valueTypes = []valueType{tString, tInt, tLong, tDouble, tDecimal, tNumber, tBool, tObjectID, tUUID, tDate, tRFC3339, tEpoch, tMillis}

var (
	numbers = []valueType{tInt, tLong, tDouble, tDecimal, tNumber}
	times   = []valueType{tDate, tRFC3339, tEpoch, tMillis}
)

// targets returns the types that a type can be converted to.
func (t valueType) targets() []valueType {
	var out []valueType
	for _, to := range valueTypes {
		if t.convertible(to) {
			out = append(out, to)
		}
	}
	return out
}

func (t valueType) convertible(to valueType) bool {
	// A conversion to the same type would do nothing.
	if t == to {
		return false
	}
	// Times convert only among themselves. A plain number or string has no time.
	if slices.Contains(times, t) || slices.Contains(times, to) {
		return slices.Contains(times, t) && slices.Contains(times, to)
	}
	switch {
	case t == tString || to == tString:
		return true
	case slices.Contains(numbers, t) && slices.Contains(numbers, to):
		return true
	}
	// A bool converts to the integers 0 and 1.
	integer := func(t valueType) bool { return t == tInt || t == tLong || t == tNumber }
	return t == tBool && integer(to) || integer(t) && to == tBool
}

func (t valueType) bson() bson.Type {
	switch t {
	case tInt:
		return bson.TypeInt32
	case tLong, tEpoch, tMillis:
		return bson.TypeInt64
	case tDouble:
		return bson.TypeDouble
	case tDecimal:
		return bson.TypeDecimal128
	case tBool:
		return bson.TypeBoolean
	case tObjectID:
		return bson.TypeObjectID
	case tUUID:
		return bson.TypeBinary
	case tDate:
		return bson.TypeDateTime
	case tNumber:
		return 0 // no type of its own
	default:
		return bson.TypeString
	}
}

// typeOf returns the name of a BSON type in a lens, or "" if it has none.
func typeOf(t bson.Type) valueType {
	for _, v := range valueTypes {
		if v.bson() == t {
			return v
		}
	}
	return ""
}

// errInexact refuses a value that would not come back.
var errInexact = errors.New("the value cannot be converted so that the reverse gives it again")

// convertValue returns the converted value, in the editor's scratch memory. It refuses every value that
// would not come back bit for bit. It checks this by converting the value back, so no rule of a
// type can be forgotten.
func convertValue(e *edit.Editor, val []byte, from, to valueType) ([]byte, error) {
	at := len(e.Scratch)
	out, ok := appendConverted(e.Scratch, val, from, to)
	if !ok {
		return nil, errInexact
	}
	// Convert back into the memory after the result. It is discarded afterwards.
	made := out[at:len(out):len(out)]
	again, ok := appendConverted(out, made, to, from)
	if !ok || !bytes.Equal(again[len(out):], val) {
		return nil, errInexact
	}
	e.Scratch = out
	return made, nil
}

func appendConverted(dst, val []byte, from, to valueType) ([]byte, bool) {
	switch {
	case slices.Contains(times, from):
		ms, ok := readTime(val, from)
		if !ok {
			return nil, false
		}
		return appendTime(dst, ms, to)
	case to == tString:
		s, ok := textOf(val, from)
		if !ok {
			return nil, false
		}
		return appendString(dst, s), true
	case from == tString:
		return appendParsed(dst, stringOf(val), to)
	}
	// Convert whole numbers directly, and all others by their text, which is exact.
	if n, ok := whole(val, from); ok {
		switch to {
		case tInt:
			return binary.LittleEndian.AppendUint32(dst, uint32(int32(n))), int64(int32(n)) == n
		case tLong:
			return appendLong(dst, n), true
		case tDouble:
			return appendDouble(dst, float64(n)), true
		case tBool:
			return append(dst, byte(n)), n == 0 || n == 1
		}
	}
	s, ok := textOf(val, from)
	if !ok {
		return nil, false
	}
	return appendParsed(dst, s, to)
}

// whole returns the value of a whole number.
func whole(val []byte, t valueType) (int64, bool) {
	switch t {
	case tInt:
		return int64(int32(binary.LittleEndian.Uint32(val))), true
	case tLong:
		return int64(binary.LittleEndian.Uint64(val)), true
	case tBool:
		return int64(val[0]), true
	case tDouble:
		f := math.Float64frombits(binary.LittleEndian.Uint64(val))
		// The bounds are those of int64: converting a float beyond them is undefined.
		return int64(f), f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63
	default:
		return 0, false
	}
}

// textOf returns the one text of a value that appendParsed converts back.
func textOf(val []byte, t valueType) (string, bool) {
	switch t {
	case tInt, tLong:
		n, _ := whole(val, t)
		return strconv.FormatInt(n, 10), true
	case tDouble:
		return strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(val)), 'g', -1, 64), true
	case tDecimal:
		return bson.NewDecimal128(binary.LittleEndian.Uint64(val[8:]), binary.LittleEndian.Uint64(val)).String(), true
	case tBool:
		return strconv.FormatBool(val[0] == 1), true
	case tObjectID:
		return hex.EncodeToString(val), true
	case tUUID:
		// Binary data of another subtype has no UUID text.
		s, err := idUUID.read(bson.RawValue{Type: bson.TypeBinary, Value: val}, readExact)
		return s, err == nil
	case tString:
		return stringOf(val), true
	default:
		return "", false
	}
}

func appendParsed(dst []byte, s string, to valueType) ([]byte, bool) {
	switch to {
	case tInt:
		n, err := strconv.ParseInt(s, 10, 32)
		return binary.LittleEndian.AppendUint32(dst, uint32(int32(n))), err == nil
	case tLong:
		n, err := strconv.ParseInt(s, 10, 64)
		return appendLong(dst, n), err == nil
	case tDouble:
		f, err := strconv.ParseFloat(s, 64)
		return appendDouble(dst, f), err == nil
	case tDecimal:
		d, err := bson.ParseDecimal128(s)
		hi, lo := d.GetBytes()
		dst = binary.LittleEndian.AppendUint64(dst, lo)
		return binary.LittleEndian.AppendUint64(dst, hi), err == nil
	case tBool:
		switch s {
		// 1 and 0 are the texts of numbers. convert refuses a spelling that would not come back.
		case "true", "1":
			return append(dst, 1), true
		case "false", "0":
			return append(dst, 0), true
		}
		return nil, false
	case tUUID:
		if idUUID.check(s) != nil {
			return nil, false
		}
		_, dst = idUUID.append(dst, s)
		return dst, true
	case tObjectID:
		b, err := hex.DecodeString(s)
		return append(dst, b...), err == nil && len(b) == 12
	default:
		return nil, false
	}
}

// stringOf returns the text of a string value. The editor checked the value's form when it opened
// the document.
func stringOf(val []byte) string { return string(val[4 : len(val)-1]) }

func appendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)+1))
	return append(append(dst, s...), 0)
}

func appendDouble(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

func appendLong(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// Times are converted by their milliseconds since 1970. The text has milliseconds only if they are
// not zero: 2026-11-20T10:00:00Z, 2026-11-20T10:00:00.250Z.
const (
	layoutSeconds = "2006-01-02T15:04:05Z"
	layoutMillis  = "2006-01-02T15:04:05.000Z"
)

func readTime(val []byte, t valueType) (ms int64, ok bool) {
	switch t {
	case tDate, tMillis:
		return int64(binary.LittleEndian.Uint64(val)), true
	case tEpoch:
		s := int64(binary.LittleEndian.Uint64(val))
		// The division detects an overflow.
		return s * 1000, s*1000/1000 == s
	default:
		at, err := time.Parse(time.RFC3339Nano, stringOf(val))
		return at.UnixMilli(), err == nil
	}
}

func appendTime(dst []byte, ms int64, t valueType) ([]byte, bool) {
	switch t {
	case tDate, tMillis:
		return appendLong(dst, ms), true
	case tEpoch:
		return appendLong(dst, ms/1000), ms%1000 == 0
	default:
		layout := layoutSeconds
		if ms%1000 != 0 {
			layout = layoutMillis
		}
		return appendString(dst, time.UnixMilli(ms).UTC().Format(layout)), true
	}
}

func joinTypes(ts []valueType) string {
	ss := make([]string, len(ts))
	for i, t := range ts {
		ss[i] = string(t)
	}
	return strings.Join(ss, ", ")
}

func stringValue(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: appendString(nil, s)}
}
