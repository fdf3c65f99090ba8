package packages

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// transcoder converts one line of the sample to BSON. It handles only what the sample contains:
// objects, arrays, strings, integers and booleans, without white space. It refuses anything else.
// The driver's Extended JSON reader gives the same result seven times slower, which would delay
// each test of 25,000 records. A test compares the two.
type transcoder struct {
	in  []byte
	out []byte
}

var errUnexpected = errors.New("unexpected JSON")

func transcode(line []byte) (bson.Raw, error) {
	t := transcoder{in: line, out: make([]byte, 0, len(line)+len(line)/4)}
	if len(line) == 0 || line[0] != '{' {
		return nil, errUnexpected
	}
	if err := t.container('}'); err != nil {
		return nil, fmt.Errorf("%w, %d bytes before the end of the line", err, len(t.in))
	}
	// Trailing bytes mean that the line is not a single object.
	if len(t.in) > 0 {
		return nil, errUnexpected
	}
	return t.out, nil
}

// container reads an object or array from its opening bracket on, and writes its length, elements
// and end.
func (t *transcoder) container(closing byte) error {
	t.in = t.in[1:]
	start := len(t.out)
	// The length is known only at the end; these four bytes reserve its place.
	t.out = append(t.out, 0, 0, 0, 0)
	for i := 0; !t.next(closing); i++ {
		if i > 0 && !t.next(',') {
			return errUnexpected
		}
		// The element's type comes before its key, but is known only after its value.
		kind := len(t.out)
		t.out = append(t.out, 0)
		// BSON stores an array as a document with the indexes as keys.
		if closing == ']' {
			t.out = strconv.AppendInt(t.out, int64(i), 10)
		} else {
			key, err := t.text()
			if err != nil {
				return err
			}
			if !t.next(':') {
				return errUnexpected
			}
			t.out = append(t.out, key...)
		}
		t.out = append(t.out, 0)
		typ, err := t.value()
		if err != nil {
			return err
		}
		t.out[kind] = byte(typ)
	}
	t.out = append(t.out, 0)
	binary.LittleEndian.PutUint32(t.out[start:], uint32(len(t.out)-start))
	return nil
}

func (t *transcoder) value() (bson.Type, error) {
	if len(t.in) == 0 {
		return 0, errUnexpected
	}
	switch t.in[0] {
	case '{':
		return bson.TypeEmbeddedDocument, t.container('}')
	case '[':
		return bson.TypeArray, t.container(']')
	case '"':
		s, err := t.text()
		t.out = binary.LittleEndian.AppendUint32(t.out, uint32(len(s)+1))
		t.out = append(append(t.out, s...), 0)
		return bson.TypeString, err
	case 't', 'f':
		// The index of the word is its BSON value.
		for i, word := range []string{"false", "true"} {
			if rest, ok := bytes.CutPrefix(t.in, []byte(word)); ok {
				t.in, t.out = rest, append(t.out, byte(i))
				return bson.TypeBoolean, nil
			}
		}
		return 0, errUnexpected
	}
	return t.integer()
}

// integer writes 32 bits if they suffice, as relaxed Extended JSON does.
func (t *transcoder) integer() (bson.Type, error) {
	end := bytes.IndexAny(t.in, ",]}")
	if end < 0 {
		return 0, errUnexpected
	}
	n, err := strconv.ParseInt(string(t.in[:end]), 10, 64)
	if err != nil {
		return 0, errUnexpected
	}
	t.in = t.in[end:]
	// The driver's reader chooses the same width, and a test compares the two.
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		t.out = binary.LittleEndian.AppendUint32(t.out, uint32(n))
		return bson.TypeInt32, nil
	}
	t.out = binary.LittleEndian.AppendUint64(t.out, uint64(n))
	return bson.TypeInt64, nil
}

// text reads a string. Escapes are rare, so it leaves them to encoding/json.
func (t *transcoder) text() ([]byte, error) {
	if !t.next('"') {
		return nil, errUnexpected
	}
	end := bytes.IndexByte(t.in, '"')
	if end < 0 {
		return nil, errUnexpected
	}
	// Without escapes the bytes can be used as they are.
	if bytes.IndexByte(t.in[:end], '\\') < 0 {
		s := t.in[:end]
		t.in = t.in[end+1:]
		return s, nil
	}
	for end = 0; end < len(t.in) && t.in[end] != '"'; end++ {
		if t.in[end] == '\\' {
			end++ // an escaped character does not end the string
		}
	}
	if end >= len(t.in) {
		return nil, errUnexpected
	}
	var decoded string
	if err := json.Unmarshal(append([]byte{'"'}, t.in[:end+1]...), &decoded); err != nil {
		return nil, errUnexpected
	}
	t.in = t.in[end+1:]
	return []byte(decoded), nil
}

// next consumes c if it is the next byte.
func (t *transcoder) next(c byte) bool {
	if len(t.in) == 0 || t.in[0] != c {
		return false
	}
	t.in = t.in[1:]
	return true
}
