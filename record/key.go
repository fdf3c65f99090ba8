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
)

// Key is the name of a record: the canonical BSON encoding of its _id, one type
// byte and then the value. Two ids that a database regards as equal (the int 5,
// the long 5 and the double 5.0, a string and a symbol of the same text, also inside
// sub-documents and scopes of code) have the same Key, so a Key can be hashed, compared for
// equality and used in a map. The order of records is that of CompareValues, and not that of
// the bytes. The zero Key is no key.
type Key string

// StringKey is the key of a record named by a string, as those of managed kinds are.
func StringKey(name string) Key {
	return Key(bsoncore.AppendString([]byte{byte(bson.TypeString)}, name))
}

// KeyOf returns the canonical key of an _id. The value's bytes are copied.
func KeyOf(id bson.RawValue) (Key, error) {
	if id.Type == 0 {
		return "", errors.New("key: no _id")
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

// Value returns the key as a BSON value that matches the record's _id in a query.
// The bytes belong to the caller.
func (k Key) Value() bson.RawValue {
	if k == "" {
		return bson.RawValue{}
	}
	return bson.RawValue{Type: bson.Type(k[0]), Value: []byte(k[1:])}
}

// Name returns the string of a key made by StringKey, and whether it is one.
func (k Key) Name() (string, bool) {
	if k == "" || bson.Type(k[0]) != bson.TypeString || len(k) < 6 {
		return "", false
	}
	return string(k[5 : len(k)-1]), true
}

// MaxKey is how many bytes a key may have. A key is held in memory for each record that
// waits for something, stands in commands several times over and in what is stored about the
// work; so the size of all of that is bounded by their number.
const MaxKey = 64 << 10

// MaxCut is how many bytes the key between two ranges may have (Provisioner.Split): it is
// stored with plans and checkpoints. Longer ones lie within a range.
const MaxCut = 1 << 10

// ErrLongKey: a key has more than MaxKey bytes.
var ErrLongKey error = refused(fmt.Sprintf("its _id has more than the %d bytes that a record can be moved with: give the document a shorter one, or delete it", MaxKey))

// CheckKey refuses keys that are too long, and those of types that no server stores as an
// _id: such a document can only come from a data file of long ago, and nothing could find it
// by its _id.
func CheckKey(k Key) error {
	if k == "" {
		return errors.New("there is no key")
	}
	if len(k) > MaxKey {
		return ErrLongKey
	}
	switch t := bson.Type(k[0]); t {
	case bson.TypeUndefined, bson.TypeArray, bson.TypeRegex:
		return fmt.Errorf("a value of type %s cannot be the _id of a document: MongoDB stores none, so give the document another _id", t)
	default:
		return nil
	}
}

// longestShown is how many bytes of a key people are shown.
const longestShown = 1 << 10

// String shows the key to people: a string as it is, anything else as extended JSON. A long
// one is cut, with a digest that distinguishes it from others that begin alike.
func (k Key) String() string {
	if k == "" {
		return "(no key)"
	}
	text, ok := k.Name()
	switch {
	case ok:
	case len(k) > MaxKey:
		text = bson.Type(k[0]).String() // extended JSON of megabytes is not worth making
	default:
		text = k.Value().String()
	}
	if len(k) <= MaxKey && len(text) <= longestShown {
		return text
	}
	const begins = 64
	sum := sha256.Sum256([]byte(k))
	return fmt.Sprintf("%s... (%d bytes, %s)", strings.ToValidUTF8(text[:min(begins, len(text))], ""), len(k), hex.EncodeToString(sum[:8]))
}

// appendCanonical appends the canonical form of v to dst, whose last byte is the
// place of the type byte.
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

// codeAndScope cuts a value of code with scope into its string value and its document.
func codeAndScope(v []byte) (code []byte, scope bson.Raw, ok bool) {
	if len(v) < 14 {
		return nil, nil, false
	}
	n := int64(binary.LittleEndian.Uint32(v[4:]))
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
		// The type byte stands before the element's name, so it is set afterwards.
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
	if f == math.Trunc(f) && f >= -(1<<63) && f < 1<<63 {
		return appendInteger(dst, at, int64(f))
	}
	if math.IsNaN(f) {
		f = math.NaN()
	}
	dst[at] = byte(bson.TypeDouble)
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// appendDecimal brings a decimal to the integer or double that equals it, and to
// its shortest decimal otherwise (1.10 and 1.1 are equal).
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
	if exp >= 0 && exp < 19 {
		n := new(big.Int).Mul(digits, new(big.Int).Exp(ten, big.NewInt(int64(exp)), nil))
		if n.IsInt64() {
			return appendInteger(dst, at, n.Int64()), nil
		}
	}
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
		// Normalising moved the exponent out of range: the value is stored as it came.
		short = d
	}
	hi, lo := short.GetBytes()
	dst[at] = byte(bson.TypeDecimal128)
	dst = binary.LittleEndian.AppendUint64(dst, lo)
	return binary.LittleEndian.AppendUint64(dst, hi), nil
}
