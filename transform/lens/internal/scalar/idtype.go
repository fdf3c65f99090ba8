package scalar

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// IDType is the type of an _id or of a part of one, as the variable of a pattern declares it. Every
// value of a type has one text, and every text belongs to one value. A variable carries the text
// between the versions, and each version writes the value in its own type. The zero value means
// IDString.
type IDType string

const (
	IDString   IDType = "string"
	IDObjectID IDType = "objectId"
	IDInt      IDType = "int"
	IDLong     IDType = "long"
	IDDouble   IDType = "double"
	IDNumber   IDType = "number" // a whole number of any BSON type; a new one is an int or double, as JavaScript writes it
	IDUUID     IDType = "uuid"
	IDDate     IDType = "date"
	IDAny      IDType = "any" // copied as it is, without a text
)

// IDTypes lists all types that a variable may have.
var IDTypes = []IDType{IDString, IDObjectID, IDInt, IDLong, IDDouble, IDNumber, IDUUID, IDDate, IDAny}

// most returns the largest absolute value of a type's whole numbers.
func (t IDType) most() int64 {
	switch t {
	case IDInt:
		return math.MaxInt32
	case IDLong, IDNumber:
		return math.MaxInt64
	default:
		// Beyond this limit, different whole numbers share one double.
		return wholeDoubles
	}
}

// wholeDoubles is the limit up to which a double holds all whole numbers.
const wholeDoubles = 1 << 53

// IsNumber reports whether the values of the type are numbers.
func (t IDType) IsNumber() bool { return t == IDInt || t == IDLong || t == IDDouble || t == IDNumber }

// Targets returns the types that a variable of this type may have in the other version, in the
// order of IDTypes.
func (t IDType) Targets() []IDType {
	var out []IDType
	for _, to := range IDTypes {
		if t.Convertible(to) {
			out = append(out, to)
		}
	}
	return out
}

// Convertible reports whether a variable may have this type in one version and the type to in the
// other: some texts belong to values of both types.
func (t IDType) Convertible(to IDType) bool {
	switch {
	case t == to:
		return true
	case t == IDAny || to == IDAny:
		return false
	// Every value has a text. check refuses a text that no value has.
	case t == IDString || to == IDString:
		return true
	}
	return t.IsNumber() && to.IsNumber()
}

// JoinIDTypes returns the names of types for an error, separated by commas.
func JoinIDTypes(ts []IDType) string {
	ss := make([]string, len(ts))
	for i, t := range ts {
		ss[i] = string(t)
	}
	return strings.Join(ss, ", ")
}

// form describes the text of a value, for errors. It contains no values and no numbers, because
// Conceal removes them.
func (t IDType) form() string {
	switch t {
	case IDObjectID:
		return "lower-case hexadecimal digits, as an ObjectId has them"
	case IDUUID:
		return "lower-case hexadecimal digits in groups with dashes between them, as a UUID has them"
	case IDDate:
		return "a time in UTC such as YYYY-MM-DDThh:mm:ssZ, with milliseconds only if they are not 0"
	case IDInt, IDLong, IDDouble, IDNumber:
		return "a whole number within its range, without leading zeros and without a plus sign"
	default:
		return "a text"
	}
}

// Check returns an error if no value of this type has the text. The error continues the sentence
// after the variable's name.
func (t IDType) Check(text string) error {
	ok := true
	switch t {
	case IDString, IDAny, "":
	case IDObjectID:
		ok = len(text) == 24 && hexadecimal(text)
	case IDUUID:
		ok = len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' && hexadecimal(strings.ReplaceAll(text, "-", "0"))
		// The check above reads dashes as zeros, so count them.
		ok = ok && strings.Count(text, "-") == 4
	case IDDate:
		// A time has many texts. Accept only the text of TimeText.
		ms, parsed := readTime(AppendString(nil, text), RFC3339)
		ok = parsed && TimeText(ms) == text
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		ok = err == nil && strconv.FormatInt(n, 10) == text && t.holds(n)
	}
	if !ok {
		return fmt.Errorf("is not the text of a value of type %s: want %s", t, t.form())
	}
	return nil
}

func hexadecimal(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}

// TimeText returns the text of a date. ms is its milliseconds since 1970.
func TimeText(ms int64) string {
	b, _ := appendTime(nil, ms, RFC3339)
	return StringOf(b)
}

// holds reports whether a whole number is a value of this type.
func (t IDType) holds(n int64) bool {
	if t == IDInt {
		return int64(int32(n)) == n
	}
	return t.most() == math.MaxInt64 || n <= t.most() && n >= -t.most()
}

// Reading is the purpose for which Read reads a value. It decides which BSON types of numbers Read
// accepts.
type Reading int

const (
	ReadExact  Reading = iota // the text must give the same bytes again
	ReadStored                // the _id of a record, which keeps the type of its number
	ReadKey                   // part of a record.Key, in which equal numbers are equal
)

// binaryUUID is the subtype of a UUID. The legacy subtype has no text, because its byte order
// depends on the driver that wrote it.
const binaryUUID = bson.TypeBinaryUUID

// Read returns the text of a value. It returns an error for a value of another type. The error
// continues a sentence after the value's name.
func (t IDType) Read(v bson.RawValue, as Reading) (string, error) {
	wrong := func() (string, error) {
		return "", fmt.Errorf("is of type %s, not %s", edit.TypeName(v.Type), cmp.Or(t, IDString))
	}
	switch t {
	case IDAny:
		return string(append([]byte{byte(v.Type)}, v.Value...)), nil
	case IDString, "":
		if v.Type == bson.TypeString {
			return StringOf(v.Value), nil
		}
		return wrong()
	case IDObjectID:
		if v.Type == bson.TypeObjectID {
			return hex.EncodeToString(v.Value), nil
		}
		return wrong()
	case IDUUID:
		if v.Type != bson.TypeBinary {
			return wrong()
		}
		// Length, subtype and 16 bytes.
		if len(v.Value) != 5+16 || v.Value[4] != binaryUUID {
			return "", fmt.Errorf("is binary, but not of the subtype of a uuid")
		}
		h := hex.EncodeToString(v.Value[5:])
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], nil
	case IDDate:
		if v.Type != bson.TypeDateTime {
			return wrong()
		}
		text := TimeText(int64(binary.LittleEndian.Uint64(v.Value)))
		// Years with more than four digits have no RFC 3339 text.
		if t.Check(text) != nil {
			return "", fmt.Errorf("is a date outside of the years with four digits, so it has no text")
		}
		return text, nil
	}
	// In these cases the record keeps the number's type, so only the value matters.
	anyType := as == ReadKey || as == ReadStored && t == IDNumber
	n, ok := wholeNumber(v, anyType)
	switch {
	case !ok && v.Type == bson.TypeDouble:
		return "", fmt.Errorf("is a double that is not a whole number, or too large to be exact")
	case !ok:
		return wrong()
	case !t.holds(n):
		return "", fmt.Errorf("is a number outside the range of type %s", t)
	}
	if at := t.numberType(n); !anyType && v.Type != at {
		hint := ""
		if t == IDNumber {
			hint = ", which JavaScript would write as " + edit.TypeName(at)
		}
		return "", fmt.Errorf("is of type %s, not %s: the reverse could not restore that type%s", edit.TypeName(v.Type), t, hint)
	}
	return strconv.FormatInt(n, 10), nil
}

// wholeNumber reads a number that has the text of a whole number. With anyType it accepts doubles
// that do not come back from the text unchanged.
func wholeNumber(v bson.RawValue, anyType bool) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		return v.AsInt64OK()
	case bson.TypeDouble:
		f := math.Float64frombits(binary.LittleEndian.Uint64(v.Value))
		n := int64(f)
		if anyType {
			return n, f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63
		}
		// -0 has no text of its own, so it would come back as 0.
		return n, f == math.Trunc(f) && math.Abs(f) <= wholeDoubles && (n != 0 || !math.Signbit(f))
	default:
		return 0, false
	}
}

func (t IDType) numberType(n int64) bson.Type {
	switch {
	case t == IDInt, t == IDNumber && int64(int32(n)) == n:
		return bson.TypeInt32
	case t == IDLong, t == IDNumber && (n > wholeDoubles || n < -wholeDoubles):
		return bson.TypeInt64
	default:
		return bson.TypeDouble
	}
}

// AppendTo appends the value of a text to dst, and returns its BSON type. Check must have accepted
// the text.
func (t IDType) AppendTo(dst []byte, text string) (bson.Type, []byte) {
	switch t {
	case IDAny:
		return bson.Type(text[0]), append(dst, text[1:]...)
	case IDObjectID:
		b, _ := hex.DecodeString(text)
		return bson.TypeObjectID, append(dst, b...)
	case IDUUID:
		b, _ := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		return bson.TypeBinary, append(append(dst, 16, 0, 0, 0, binaryUUID), b...)
	case IDDate:
		ms, _ := readTime(AppendString(nil, text), RFC3339)
		return bson.TypeDateTime, AppendLong(dst, ms)
	case IDInt, IDLong, IDDouble, IDNumber:
		n, _ := strconv.ParseInt(text, 10, 64)
		switch at := t.numberType(n); at {
		case bson.TypeInt32:
			return at, binary.LittleEndian.AppendUint32(dst, uint32(int32(n)))
		case bson.TypeInt64:
			return at, AppendLong(dst, n)
		default:
			return at, appendDouble(dst, float64(n))
		}
	default:
		return bson.TypeString, AppendString(dst, text)
	}
}

// IDTypeOf returns the type with a name. An unknown or empty name is an error that lists the types.
func IDTypeOf(name string) (IDType, error) {
	if t := IDType(name); slices.Contains(IDTypes, t) {
		return t, nil
	}
	return "", fmt.Errorf("unknown type %q of a key; allowed: %s", name, JoinIDTypes(IDTypes))
}
