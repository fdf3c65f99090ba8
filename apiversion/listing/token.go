package listing

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/protodoc"
)

// Token is the place in a list after a page.
type Token struct {
	Name   string // name of the last record that was read
	Values []any  // its sort values, one for each field of the order
	Digest string // digest of the request; see Digest
}

// tokenFormat is the version of the encoding. Clients keep tokens across deployments, so a new
// format needs a new number.
const tokenFormat = 1

// wireToken is the encoding of a token: JSON in base64, so that people can inspect it. Each value
// carries its type.
type wireToken struct {
	Format int      `json:"f"`
	Name   string   `json:"n"`
	Values []string `json:"v,omitempty"`
	Digest string   `json:"d"`
}

// String returns the token in its encoded form.
func (t Token) String() string {
	w := wireToken{Format: tokenFormat, Name: t.Name, Digest: t.Digest}
	for _, v := range t.Values {
		w.Values = append(w.Values, tagged(v))
	}
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken decodes a token. The error does not contain any part of the token.
func ParseToken(s string) (Token, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Token{}, errToken
	}
	var w wireToken
	if err := json.Unmarshal(b, &w); err != nil || w.Format != tokenFormat {
		return Token{}, errToken
	}
	t := Token{Name: w.Name, Digest: w.Digest}
	for _, s := range w.Values {
		v, err := untagged(s)
		if err != nil {
			return Token{}, errToken
		}
		t.Values = append(t.Values, v)
	}
	return t, nil
}

// ErrOtherRequest means that a page token came with another request than the one that returned it.
// Repeat the request of the first page.
var ErrOtherRequest = errors.New("belongs to another request: repeat the request of the first page with its parent, filter and order_by")

var errToken = fmt.Errorf("is not a token of this service: ask for the first page again")

// tagged encodes a value with one letter for its type.
func tagged(x any) string {
	switch x := x.(type) {
	case string:
		return "s" + base64.RawURLEncoding.EncodeToString([]byte(x)) // may not be UTF-8, which JSON requires
	case int64:
		return "i" + strconv.FormatInt(x, 10)
	case uint64:
		return "u" + strconv.FormatUint(x, 10)
	case float64:
		return "d" + strconv.FormatFloat(x, 'g', -1, 64)
	case bool:
		return "b" + strconv.FormatBool(x)
	case []byte:
		return "x" + base64.RawURLEncoding.EncodeToString(x)
	case time.Time:
		return "t" + x.UTC().Format(time.RFC3339Nano)
	default:
		return "n"
	}
}

// untagged decodes a value from tagged.
func untagged(s string) (any, error) {
	if s == "" {
		return nil, errToken
	}
	switch body := s[1:]; s[0] {
	case 's':
		b, err := base64.RawURLEncoding.DecodeString(body)
		return string(b), err
	case 'i':
		return strconv.ParseInt(body, 10, 64)
	case 'u':
		return strconv.ParseUint(body, 10, 64)
	case 'd':
		return strconv.ParseFloat(body, 64)
	case 'b':
		return strconv.ParseBool(body)
	case 'x':
		return base64.RawURLEncoding.DecodeString(body)
	case 't':
		t, err := time.Parse(time.RFC3339Nano, body)
		if t = t.UTC(); err == nil && (t.Year() < 0 || t.Year() > 9999) { // RFC 3339 has years 0 to 9999 only
			err = errToken
		}
		return t, err
	case 'n':
		return nil, nil
	}
	return nil, errToken
}

// Digest returns a digest of a list request: all set fields except page size, page token and read
// mask. A field that a later version of the service adds does not change the digest of requests
// without it.
func Digest(req proto.Message, names Fields) (string, error) {
	unknown := req.ProtoReflect().GetUnknown() // sent by a client newer than the service
	if len(unknown) > 0 {
		// protodoc refuses unknown fields, so hash their bytes instead.
		req = proto.Clone(req)
		req.ProtoReflect().SetUnknown(nil)
	}
	// The encoding is canonical: equal requests have equal digests in every process.
	doc, err := protodoc.Marshal(req)
	if err != nil {
		return "", err
	}
	elements, err := doc.Elements()
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	m := req.ProtoReflect()
	h := sha256.New()
	h.Write(unknown)
	for _, e := range elements {
		name := protoreflect.Name(e.Key())
		// Clients may change these from page to page. A field that is unset must not count, or a
		// new field would change the digests of old requests.
		if name == names.PageSize || name == names.PageToken || name == names.ReadMask || !m.Has(m.Descriptor().Fields().ByName(name)) {
			continue
		}
		h.Write(bson.RawElement(e))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:9]), nil
}

// resume returns the place where a request continues, or nil for the first page. It checks that the
// token belongs to the request.
func resume(token, digest string, order Order) (*Token, error) {
	if token == "" {
		return nil, nil
	}
	t, err := ParseToken(token)
	if err != nil {
		return nil, Invalid("page_token", "%s", err)
	}
	if t.Digest != digest {
		return nil, Invalid("page_token", "%s", ErrOtherRequest)
	}
	if len(t.Values) != len(order) {
		return nil, Invalid("page_token", "%s", errToken)
	}
	for i, v := range t.Values {
		if v == nil {
			continue
		}
		// Clients can forge tokens, and the comparison relies on the types of values.
		if t.Values[i], err = Coerce(v, order[i].field.fd); err != nil {
			return nil, Invalid("page_token", "%s", errToken)
		}
	}
	return &t, nil
}
