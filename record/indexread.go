package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
)

// ErrNoIndex reports that the index of a field is missing or incomplete. The caller reads without
// it.
var ErrNoIndex = errors.New("there is no complete index of the field")

// IndexReader is an optional ability of a Client. It reads a managed kind by a declared field
// (KindSpec.Indexed), in the order of (value, name). It returns the same records as List, and they
// are as recent.
//
// A document without the field has the value null, like a document with null in it. A document with
// an array has one value for each item. In a range, such a document may come at any place and more
// than once. A reader that expects single values must stop there.
type IndexReader interface {
	// ListIndexed returns the next records of one value or of a range of values. ErrNoIndex: read
	// without the index.
	ListIndexed(ctx context.Context, req IndexRequest) (IndexPage, error)
}

// IndexRequest asks for live records with string names by the value of one field.
type IndexRequest struct {
	Token Token
	Field string // dotted path of a declared field
	// Equal selects the records of one value, in name order, with names after After. Values are
	// equal as in CompareValues. The zero RawValue selects a range instead.
	Equal bson.RawValue
	After string
	// Above and Below are the exclusive bounds of a range. Above is required. The range holds only
	// values of the type of Above; all numbers count as one type. The zero Below sets no upper
	// bound. Records come in the order of (value, name), or in reverse order with Reverse.
	Above, Below bson.RawValue
	Reverse      bool
	Prefix       string // of the name; empty: all names
	Limit        int    // maximum number of records. 0: 1000
	Bytes        int    // the page ends with the record that reaches this size. 0: no limit
}

// IndexPage is the result of an IndexReader. A page that is not Done may be empty: a read examines
// a limited number of index entries, and not all of them belong to matching records.
type IndexPage struct {
	Records []Record
	Values  []bson.RawValue // the value under which each of Records was found
	Done    bool            // the request has no more results
	// Last and LastName are the place of the last examined entry. The next page begins after it.
	// They are not set if Done.
	Last     bson.RawValue
	LastName string
	Looked   int // number of examined entries
}

// indexedPrefix is the prefix of the index names for declared fields.
const indexedPrefix = "dbc_by_"

// IndexedName returns the name of the index of a declared field.
func IndexedName(field string) string { return indexedPrefix + field }

// IndexedSpec returns the spec of the index of a declared field.
func IndexedSpec(field string) bson.Raw {
	raw, err := bson.Marshal(bson.D{
		{Key: "v", Value: int32(2)},
		{Key: "key", Value: bson.D{{Key: field, Value: int32(1)}, {Key: "_id", Value: int32(1)}}},
		{Key: "name", Value: IndexedName(field)},
	})
	if err != nil {
		panic(err) // cannot fail: two strings and two numbers
	}
	return raw
}

// CheckIndexed refuses a path that cannot be a declared field.
func CheckIndexed(field string) error {
	for _, part := range strings.Split(field, ".") {
		if part == "" || strings.HasPrefix(part, "$") || strings.ContainsRune(part, 0) {
			return fmt.Errorf("%q is not the path of a field, such as status or owner.email", field)
		}
	}
	// The _id is part of each of these indexes, and the reserved field has the guard.
	if first, _, _ := strings.Cut(field, "."); first == "_id" || first == ReservedField {
		return fmt.Errorf("%q cannot be declared: the database keeps %s itself", field, first)
	}
	return nil
}

// WithIndexed returns the kind with the indexes of its declared fields added to its shape. It is
// for databases that build such indexes (Info.Indexes).
func WithIndexed(k KindSpec) KindSpec {
	k.Shape.Indexes = slices.Clone(k.Shape.Indexes)
	for _, field := range k.Indexed {
		k.Shape.Indexes = append(k.Shape.Indexes, IndexedSpec(field))
	}
	return k
}

// ValuesAt returns the values of a document at a dotted path, as an index sees them: each item of
// an array, or null if the field is missing.
func ValuesAt(doc bson.Raw, path string) []bson.RawValue {
	v := rawdoc.Lookup(doc, strings.Split(path, ".")...)
	if v.Type == 0 {
		v = bson.RawValue{Type: bson.TypeNull}
	}
	items, ok := v.ArrayOK()
	if !ok {
		return []bson.RawValue{v}
	}
	values, _ := items.Values()
	// An index has one entry for equal values, whatever their types are.
	slices.SortFunc(values, CompareValues)
	return slices.CompactFunc(values, func(a, b bson.RawValue) bool { return CompareValues(a, b) == 0 })
}

// SameType reports whether two values have one type in the order of values. All numbers are one
// type.
func SameType(a, b bson.RawValue) bool { return typeRank(a.Type) == typeRank(b.Type) }
