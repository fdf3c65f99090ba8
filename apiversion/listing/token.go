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

// Token is the place after a page.
type Token struct {
	Name   string // of the last record that was read
	Values []any  // what it was sorted by, one for each field of the order
	Digest string // of the request, see Digest
}

// tokenFormat is the version of the encoding. Clients keep tokens across deployments.
const tokenFormat = 1

// wireToken is the encoding of a token: JSON in base64, so that a person can look into
// one. Values carry their type.
type wireToken struct {
	Format int      `json:"f"`
	Name   string   `json:"n"`
	Values []string `json:"v,omitempty"`
	Digest string   `json:"d"`
}

// String returns the token as a client gets it.
func (t Token) String() string {
	w := wireToken{Format: tokenFormat, Name: t.Name, Digest: t.Digest}
	for _, v := range t.Values {
		w.Values = append(w.Values, tagged(v))
	}
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads a token. The error contains nothing of its content, which is the
// service's own.
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

// ErrOtherRequest: a page token came with another request than the one that it is of.
var ErrOtherRequest = errors.New("belongs to another request: repeat the request of the first page with its parent, filter and order_by")

var errToken = fmt.Errorf("is not a token of this service: ask for the first page again")

func tagged(x any) string {
	switch x := x.(type) {
	case string:
		return "s" + base64.RawURLEncoding.EncodeToString([]byte(x)) // may be no UTF-8
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
		if t = t.UTC(); err == nil && (t.Year() < 0 || t.Year() > 9999) { // no text has it
			err = errToken
		}
		return t, err
	case 'n':
		return nil, nil
	}
	return nil, errToken
}

// Digest identifies what a list request asks for: all its fields that are set, except
// the page's size and token and the mask. A field that the service adds later does not
// change the digest of requests that do not set it.
func Digest(req proto.Message, names Fields) (string, error) {
	unknown := req.ProtoReflect().GetUnknown() // of a client that is newer than the service
	if len(unknown) > 0 {
		req = proto.Clone(req)
		req.ProtoReflect().SetUnknown(nil)
	}
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
		if name == names.PageSize || name == names.PageToken || name == names.ReadMask || !m.Has(m.Descriptor().Fields().ByName(name)) {
			continue
		}
		h.Write(bson.RawElement(e))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:9]), nil
}

// resume returns the place where a request goes on, nil for its beginning.
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
		if t.Values[i], err = Coerce(v, order[i].field.fd); err != nil {
			return nil, Invalid("page_token", "%s", errToken)
		}
	}
	return &t, nil
}
