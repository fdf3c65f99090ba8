package etcdstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Format is the encoding of an application's values. A document consists of the value's fields,
// with the name of the key in front as its _id.
type Format string

const (
	// JSON is a JSON object. Types that JSON lacks have the form of MongoDB's Extended JSON:
	// {"$date": ...}, {"$oid": ...}, and {"$numberLong": ...} for a long that fits into an int.
	JSON Format = "json"
	// BSON is a BSON document.
	BSON Format = "bson"
)

var errOwnID = errors.New("the value has a field _id, but the name of its key is the _id")

// document returns the value of a key as a document. It refuses values that would not re-encode to
// the same content.
func (f Format) document(name string, value []byte) (bson.Raw, error) {
	if !utf8.ValidString(name) {
		return nil, errors.New("the key is not UTF-8")
	}
	body := bson.Raw(value)
	// Check the numbers first, because the parser rounds them silently.
	if f == JSON {
		if err := exactNumbers(value); err != nil {
			return nil, err
		}
		var d bson.D
		if err := bson.UnmarshalExtJSON(value, false, &d); err != nil {
			return nil, errors.New("the value is not a JSON object")
		}
		raw, err := bson.Marshal(d)
		if err != nil {
			return nil, errors.New("the value is not a document")
		}
		body = raw
	}
	if valid(body) != nil {
		return nil, errors.New("the value is not a BSON document")
	}
	// The name of the key is the _id, so a second one would get lost.
	if _, err := body.LookupErr("_id"); err == nil {
		return nil, errOwnID
	}
	doc := withID(name, body)
	if f == JSON {
		// The parser accepts more than value writes, such as invalid dates and numbers of other
		// widths. A round trip finds such values, which would otherwise change silently.
		if again, err := f.value(doc); err != nil {
			return nil, err
		} else if back, err := f.body(again); err != nil || !bytes.Equal(back, body) {
			return nil, errors.New("the value would change when it is written and read again")
		}
	}
	return doc, nil
}

// valid refuses invalid documents, and documents followed by other bytes. Validate accepts the
// latter, but they would corrupt any document built from them.
func valid(doc bson.Raw) error {
	if err := rawdoc.Validate(doc); err != nil {
		return err
	}
	if n, _, _ := bsoncore.ReadLength(doc); int(n) != len(doc) {
		return fmt.Errorf("%d bytes follow it", len(doc)-int(n))
	}
	return nil
}

func (f Format) body(value []byte) (bson.Raw, error) {
	var d bson.D
	if err := bson.UnmarshalExtJSON(value, false, &d); err != nil {
		return nil, err
	}
	return bson.Marshal(d)
}

func withID(name string, body bson.Raw) bson.Raw {
	id, _ := bson.Marshal(bson.D{{Key: "_id", Value: name}}) // cannot fail: one valid string
	// Join the two documents: drop the final zero of the first and the length of the second.
	doc := append(id[:len(id)-1:len(id)-1], body[4:]...)
	n := len(doc)
	doc[0], doc[1], doc[2], doc[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	return bson.Raw(doc)
}

// value returns a document in the form of its key's value.
func (f Format) value(doc bson.Raw) ([]byte, error) {
	doc = record.Stored(doc) // move the _id to the front, wherever it is
	elems, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	if len(elems) == 0 || elems[0].Key() != "_id" {
		return nil, errors.New("the document has no _id")
	}
	if f == BSON {
		body := append(bson.Raw{0, 0, 0, 0}, doc[4+len(elems[0]):]...)
		n := len(body)
		body[0], body[1], body[2], body[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		return body, nil
	}
	return appendObject(nil, elems[1:])
}

// stored returns a document in the form of its key's value, and refuses one that would be read as
// something else. In JSON a subdocument {"$numberLong": "5"} becomes a long, for example.
func (f Format) stored(doc bson.Raw) ([]byte, error) {
	value, err := f.value(doc)
	if err != nil || f != JSON {
		return value, err
	}
	doc = record.Stored(doc)
	name, _ := doc.Lookup("_id").StringValueOK() // checkDoc has compared it with the key
	back, err := f.document(name, value)
	if err != nil {
		return nil, fmt.Errorf("it cannot be stored as JSON: %w", err)
	}
	if !bytes.Equal(back, doc) {
		return nil, errors.New("it would be read as another document from JSON, because a field name begins with $ or a value has no form of its own there: change it in the lens")
	}
	return value, nil
}

func appendObject(dst []byte, elems []bson.RawElement) ([]byte, error) {
	dst = append(dst, '{')
	for i, e := range elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		// The encoder would replace the bytes, so that two fields could get one name.
		if !utf8.ValidString(e.Key()) {
			return nil, fmt.Errorf("the field name %q is not UTF-8, which JSON requires", e.Key())
		}
		dst = append(appendText(dst, e.Key()), ':')
		var err error
		if dst, err = appendValue(dst, e.Value()); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendText(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string cannot fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

func appendValue(dst []byte, v bson.RawValue) ([]byte, error) {
	switch v.Type {
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elems, err := bson.Raw(v.Value).Elements()
		if err != nil {
			return nil, err
		}
		if v.Type == bson.TypeEmbeddedDocument {
			return appendObject(dst, elems)
		}
		dst = append(dst, '[')
		for i, e := range elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendValue(dst, e.Value()); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case bson.TypeString:
		s, ok := v.StringValueOK()
		if !ok {
			return nil, errors.New("a text lacks its end")
		}
		if !utf8.ValidString(s) {
			return nil, errors.New("a text is not UTF-8, which JSON requires")
		}
		return appendText(dst, s), nil
	case bson.TypeBoolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	case bson.TypeNull:
		return append(dst, "null"...), nil
	case bson.TypeInt32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case bson.TypeInt64:
		// A long that fits into an int needs the extended form, or it would return as an int.
		if n := v.Int64(); n < math.MinInt32 || n > math.MaxInt32 {
			return strconv.AppendInt(dst, n, 10), nil
		}
	case bson.TypeDouble:
		if d := v.Double(); !math.IsNaN(d) && !math.IsInf(d, 0) {
			text := strconv.FormatFloat(d, 'g', -1, 64)
			// Without a point or exponent, the number would return as an integer.
			if !bytes.ContainsAny([]byte(text), ".e") {
				text += ".0"
			}
			return append(dst, text...), nil
		}
	}
	// All other types have only the canonical extended form.
	wrapped, err := bson.Marshal(bson.D{{Key: "v", Value: v}})
	if err != nil {
		return nil, err
	}
	text, err := bson.MarshalExtJSON(bson.Raw(wrapped), true, false)
	if err != nil {
		return nil, fmt.Errorf("a value of type %s has no form in JSON", v.Type)
	}
	return append(dst, text[len(`{"v":`):len(text)-1]...), nil
}

// exactNumbers refuses numbers that no BSON type can represent exactly.
func exactNumbers(value []byte) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	for depth := 0; ; {
		tok, err := dec.Token()
		if err != nil {
			return errors.New("the value is not a JSON object")
		}
		switch t := tok.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
		case json.Number:
			// A rounded number would change the application's data at the next write.
			if !exact(string(t)) {
				return errors.New("the value has a number that is too large, or too precise, for a document: write it as a text")
			}
		}
		// A deeper document could not be stored in MongoDB.
		if depth > maxDepth {
			return errors.New("the value is nested too deeply")
		}
		if depth == 0 {
			if dec.More() {
				return errors.New("there is data after the JSON object")
			}
			return nil
		}
	}
}

// maxDepth is the maximum nesting of documents in MongoDB.
const maxDepth = 100

func exact(number string) bool {
	if _, err := strconv.ParseInt(number, 10, 64); err == nil {
		return number != "-0" // as an integer, a negative zero would lose its sign
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || len(number) > 400 || !bytes.ContainsAny([]byte(number), ".eE") {
		return false
	}
	// A double holds the number if its shortest decimal form has the same value.
	is, ok := new(big.Rat).SetString(number)
	back, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
	return ok && is.Cmp(back) == 0
}

// named returns the string in a key, or the reason why a fixed-name kind in etcd cannot have this
// key.
func named(key record.Key) (string, error) {
	name, ok := key.Name()
	if !ok {
		return "", fmt.Errorf("its _id is of type %s, but the names of keys in etcd are texts: convert it in the lens", bson.Type(key[0]))
	}
	if !utf8.ValidString(name) {
		return "", errors.New("its _id is not UTF-8")
	}
	return name, nil
}
