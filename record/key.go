package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
)

// Key is the name of a record: the canonical BSON encoding of its _id, one type byte and then the
// value. Ids that a database regards as equal have the same Key. Examples are the int 5 and the
// double 5.0, or a string and a symbol with the same text. This also holds inside sub-documents and
// scopes of code. Callers can therefore hash a Key, compare it for equality and use it in a map.
// The order of records is the order of CompareValues, not the order of the bytes. The zero Key is
// no key.
type Key string

// StringKey returns the key of a record named by a string. Records of managed kinds have such keys.
func StringKey(name string) Key {
	return Key(bsoncore.AppendString([]byte{byte(bson.TypeString)}, name))
}

// KeyOf returns the canonical key of an _id. The value's bytes are copied.
func KeyOf(id bson.RawValue) (Key, error) {
	if id.Type == 0 {
		return "", errors.New("key: no _id")
	}
	// The canonical form is made recursively.
	if rawdoc.TooDeep(id) {
		return "", errors.New("key: the _id has too many documents within documents")
	}
	b, err := appendCanonical([]byte{0}, id)
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	return Key(b), nil
}

// KeyOfDoc returns the key of a document's _id.
func KeyOfDoc(doc bson.Raw) (Key, error) {
	id, err := doc.LookupErr("_id")
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	return KeyOf(id)
}

// Value returns the key as a BSON value that matches the record's _id in a query. The caller owns
// the bytes.
func (k Key) Value() bson.RawValue {
	if k == "" {
		return bson.RawValue{}
	}
	return bson.RawValue{Type: bson.Type(k[0]), Value: []byte(k[1:])}
}

// Name returns the string of a key made by StringKey. The result is false for other keys.
func (k Key) Name() (string, bool) {
	// A string value has four bytes of length and a final zero.
	if k == "" || bson.Type(k[0]) != bson.TypeString || len(k) < 6 {
		return "", false
	}
	return string(k[5 : len(k)-1]), true
}

// MaxKey is the maximum size of a key in bytes. Each pending record holds its key in memory. A key
// also occurs several times in commands and in stored progress. The limit bounds the size of all
// three.
const MaxKey = 64 << 10

// MaxCut is the maximum size in bytes of a key between two ranges (Provisioner.Split). Plans and
// checkpoints store such keys. Longer keys lie inside a range.
const MaxCut = 1 << 10

// ErrLongKey reports a key of more than MaxKey bytes.
var ErrLongKey error = refused(fmt.Sprintf("its _id has more than the %d bytes that a record can be moved with: give the document a shorter one, or delete it", MaxKey))

// CheckKey refuses keys that are too long, and keys of types that no server stores as an _id. A
// document with such an _id can only come from a very old data file. No query could find it by its
// _id.
func CheckKey(k Key) error {
	if k == "" {
		return errors.New("there is no key")
	}
	if len(k) > MaxKey {
		return ErrLongKey
	}
	switch t := bson.Type(k[0]); t {
	// MongoDB refuses these types as an _id.
	case bson.TypeUndefined, bson.TypeArray, bson.TypeRegex:
		return fmt.Errorf("a value of type %s cannot be the _id of a document: MongoDB stores none, so give the document another _id", t)
	default:
		return nil
	}
}

// longestShown is the maximum number of bytes of a key in a message.
const longestShown = 1 << 10

// String returns the key in readable form: a string as it is, any other value as extended JSON. A
// long key is cut, and a digest then distinguishes it from keys with the same beginning.
func (k Key) String() string {
	if k == "" {
		return "(no key)"
	}
	text, ok := k.Name()
	switch {
	case ok:
	case len(k) > MaxKey:
		text = bson.Type(k[0]).String() // avoid building megabytes of extended JSON
	default:
		text = k.Value().String()
	}
	if len(k) <= MaxKey && len(text) <= longestShown {
		return text
	}
	const begins = 64
	// Cut keys may begin alike, so a digest tells them apart.
	sum := sha256.Sum256([]byte(k))
	return fmt.Sprintf("%s... (%d bytes, %s)", strings.ToValidUTF8(text[:min(begins, len(text))], ""), len(k), hex.EncodeToString(sum[:8]))
}

// appendCanonical appends the canonical form of v. The last byte of dst is reserved for the type
// byte.
func appendCanonical(dst []byte, v bson.RawValue) ([]byte, error) {
	at := len(dst) - 1
	dst[at] = byte(v.Type)
	switch v.Type {
	case bson.TypeInt32:
		n, ok := v.Int32OK()
		if !ok {
			return nil, errors.New("truncated int32")
		}
		return appendInteger(dst, at, int64(n)), nil
	case bson.TypeInt64:
		n, ok := v.Int64OK()
		if !ok {
			return nil, errors.New("truncated int64")
		}
		return appendInteger(dst, at, n), nil
	case bson.TypeDouble:
		f, ok := v.DoubleOK()
		if !ok {
			return nil, errors.New("truncated double")
		}
		return appendDouble(dst, at, f), nil
	case bson.TypeDecimal128:
		d, ok := v.Decimal128OK()
		if !ok {
			return nil, errors.New("truncated decimal128")
		}
		return appendDecimal(dst, at, d)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return appendCanonicalDoc(dst, bson.Raw(v.Value))
	case bson.TypeSymbol:
		dst[at] = byte(bson.TypeString)
		// A database regards a symbol and a string of the same text as equal.
		return append(dst, v.Value...), nil
	case bson.TypeCodeWithScope:
		code, scope, ok := codeAndScope(v.Value)
		if !ok {
			return nil, errors.New("truncated code with scope")
		}
		start := len(dst)
		dst, err := appendCanonicalDoc(append(append(dst, 0, 0, 0, 0), code...), scope)
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
		return dst, nil
	default:
		return append(dst, v.Value...), nil
	}
}

// codeAndScope splits a value of code with scope into its string value and its document.
func codeAndScope(v []byte) (code []byte, scope bson.Raw, ok bool) {
	if len(v) < 14 {
		return nil, nil, false
	}
	n := int64(binary.LittleEndian.Uint32(v[4:]))
	// The length comes from the data, so check it before slicing.
	if n < 1 || 8+n+5 > int64(len(v)) {
		return nil, nil, false
	}
	return v[4 : 8+n], bson.Raw(v[8+n:]), true
}

func appendCanonicalDoc(dst []byte, doc bson.Raw) ([]byte, error) {
	elems, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, e := range elems {
		// BSON writes the type before the name, but the canonical type is known only after the
		// value. So appendCanonical puts it behind the name, and we move it here.
		typeAt := len(dst)
		dst = append(dst, 0)
		dst = append(dst, e.Key()...)
		dst = append(dst, 0, 0)
		mark := len(dst) - 1
		dst, err = appendCanonical(dst, e.Value())
		if err != nil {
			return nil, err
		}
		dst[typeAt] = dst[mark]
		dst = append(dst[:mark], dst[mark+1:]...)
	}
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst, nil
}

func appendInteger(dst []byte, at int, n int64) []byte {
	dst[at] = byte(bson.TypeInt64)
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

func appendDouble(dst []byte, at int, f float64) []byte {
	// Integral doubles equal the integer, so they must have the same Key.
	if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63 {
		return appendInteger(dst, at, int64(f))
	}
	// All NaN bit patterns are equal.
	if math.IsNaN(f) {
		f = math.NaN()
	}
	dst[at] = byte(bson.TypeDouble)
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// appendDecimal appends a decimal as the integer or double of the same value, or else in its
// shortest decimal form (1.10 and 1.1 are equal).
func appendDecimal(dst []byte, at int, d bson.Decimal128) ([]byte, error) {
	if d.IsNaN() {
		return appendDouble(dst, at, math.NaN()), nil
	}
	if inf := d.IsInf(); inf != 0 {
		return appendDouble(dst, at, math.Inf(inf)), nil
	}
	digits, exp, err := d.BigInt()
	if err != nil {
		return nil, err
	}
	// Remove trailing zeros of the digits: equal decimals must have equal bytes.
	ten, rest := big.NewInt(10), new(big.Int)
	for digits.Sign() != 0 {
		q, r := new(big.Int).QuoRem(digits, ten, rest)
		if r.Sign() != 0 {
			break
		}
		digits, exp = q, exp+1
	}
	if digits.Sign() == 0 {
		return appendInteger(dst, at, 0), nil
	}
	// Larger exponents exceed an int64 and would only cost time.
	if exp >= 0 && exp < 19 {
		n := new(big.Int).Mul(digits, new(big.Int).Exp(ten, big.NewInt(int64(exp)), nil))
		if n.IsInt64() {
			return appendInteger(dst, at, n.Int64()), nil
		}
	}
	// A double with exactly this value is equal to the decimal, so use the double's form.
	exact := new(big.Rat).SetInt(digits)
	scale := new(big.Rat).SetInt(new(big.Int).Exp(ten, big.NewInt(int64(max(exp, -exp))), nil))
	if exp < 0 {
		exact.Quo(exact, scale)
	} else {
		exact.Mul(exact, scale)
	}
	if f, same := exact.Float64(); same {
		return appendDouble(dst, at, f), nil
	}
	short, ok := bson.ParseDecimal128FromBigInt(digits, exp)
	if !ok {
		// Normalising moved the exponent out of range, so keep the original form.
		short = d
	}
	hi, lo := short.GetBytes()
	dst[at] = byte(bson.TypeDecimal128)
	dst = binary.LittleEndian.AppendUint64(dst, lo)
	return binary.LittleEndian.AppendUint64(dst, hi), nil
}
