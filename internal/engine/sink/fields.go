package sink

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Fields returns the transform that keeps the texts of fields, named by dotted paths. Numbers,
// booleans and times become texts. A list has the texts of its items, and an embedded document
// those of its fields. Bytes and null have none.
func Fields(paths ...string) Transform {
	return func(r record.Record) (Document, error) {
		doc := Document{}
		for _, path := range paths {
			if texts := textsOf(nil, rawdoc.Lookup(r.Doc, strings.Split(path, ".")...)); len(texts) > 0 {
				doc[path] = texts
			}
		}
		return doc, nil
	}
}

// textsOf appends the texts of a value.
func textsOf(to []string, v bson.RawValue) []string {
	switch v.Type {
	case bson.TypeString:
		if text, ok := v.StringValueOK(); ok && text != "" {
			to = append(to, text)
		}
	case bson.TypeBoolean:
		if b, ok := v.BooleanOK(); ok {
			to = append(to, strconv.FormatBool(b))
		}
	case bson.TypeInt32, bson.TypeInt64:
		if n, ok := v.AsInt64OK(); ok {
			to = append(to, strconv.FormatInt(n, 10))
		}
	case bson.TypeDouble:
		if n, ok := v.DoubleOK(); ok {
			to = append(to, strconv.FormatFloat(n, 'g', -1, 64))
		}
	case bson.TypeDateTime:
		if ms, ok := v.DateTimeOK(); ok {
			to = append(to, time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, err := bson.Raw(v.Value).Elements()
		if err != nil {
			return to // a damaged value has no text
		}
		for _, e := range elements {
			to = textsOf(to, e.Value())
		}
	default:
	}
	return to
}
