package sealed

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzShape: of any declared indexes, the fields that stay readable are those that the indexes
// read, or the shape is refused. A validator is always refused.
func FuzzShape(f *testing.F) {
	for _, spec := range []bson.D{
		{{Key: "key", Value: bson.D{{Key: "a.b", Value: 1}, {Key: "_id", Value: 1}}}, {Key: "partialFilterExpression", Value: bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "c", Value: 1}}, 5}}}}},
		{{Key: "key", Value: bson.D{{Key: "_fts", Value: "text"}, {Key: "_ftsx", Value: 1}}}, {Key: "weights", Value: bson.D{{Key: "title", Value: 1}, {Key: "body.text", Value: 2}}}},
		{{Key: "key", Value: bson.D{{Key: "$**", Value: 1}}}},
		{{Key: "key", Value: bson.A{1}}, {Key: "weights", Value: "x"}},
		{{Key: "key", Value: bson.D{{Key: "", Value: 1}, {Key: ".", Value: 1}}}, {Key: "name", Value: 5}},
	} {
		raw, err := bson.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)-2]))
	}
	validator, err := bson.Marshal(bson.D{{Key: "validator", Value: bson.D{}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		kind := record.KindSpec{Name: "users", Shape: record.Shape{Indexes: []bson.Raw{spec}}}
		fields, err := fieldsOf(kind)
		if err == nil {
			var ix struct {
				Key bson.D `bson:"key"`
			}
			if err := bson.Unmarshal(spec, &ix); err != nil {
				t.Errorf("%x is read as %q: %v", spec, fields, err)
			}
			for _, e := range ix.Key {
				first, _, _ := strings.Cut(e.Key, ".")
				if special := e.Key == "_fts" || e.Key == "_ftsx" || first == "_id"; !special && !slices.Contains(fields, first) {
					t.Errorf("field %q of the key is not readable: %q", e.Key, fields)
				}
			}
			if !slices.IsSorted(fields) || len(slices.Compact(slices.Clone(fields))) != len(fields) || slices.Contains(fields, "_id") || slices.ContainsFunc(fields, func(s string) bool { return strings.Contains(s, ".") }) {
				t.Errorf("readable fields %q", fields)
			}
		}
		kind.Shape.Indexes = append(kind.Shape.Indexes, spec)
		if twice, again := fieldsOf(kind); !slices.Equal(twice, fields) || (again == nil) != (err == nil) {
			t.Errorf("the same index again: %q and %q, %v and %v", fields, twice, err, again)
		}
		kind.Shape.Options = validator
		var unsupported *record.UnsupportedError
		if _, err := fieldsOf(kind); !errors.As(err, &unsupported) {
			t.Errorf("with a validator: %v", err)
		}
	})
}
