package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ErrNoIndex is returned by IndexReader where the index of a field is not there, or not complete
// yet. The caller reads without it.
var ErrNoIndex = errors.New("there is no complete index of the field")

// IndexReader is an ability that a Client may have: it reads a managed kind by one of its declared
// fields (KindSpec.Indexed), in the order of (value, name). The records that it returns are those
// that List returns, and as recent.
//
// A document without the field has the value null there, as one that holds null. A document with
// an array has each item as a value. In a range such a document may come anywhere and more than
// once: a reader of single values stops at it.
type IndexReader interface {
	// ListIndexed returns the next records of one value or of a range of values. ErrNoIndex: read
	// without it.
	ListIndexed(ctx context.Context, req IndexRequest) (IndexPage, error)
}

// IndexRequest asks for live records with string names by the value of one field.
type IndexRequest struct {
	Token Token
	Field string // dotted path of a declared field
	// Equal asks for the records of one value, in name order, with names after After. Values are
	// equal as in CompareValues. The zero RawValue: a range is asked for.
	Equal bson.RawValue
	After string
	// Above and Below are the exclusive bounds of a range. Above is always there. Only values of the
	// type of Above are in the range, where all numbers are one type. The zero Below: all that are
	// greater. Records are in the order of (value, name) or, with Reverse, in the opposite one.
	Above, Below bson.RawValue
	Reverse      bool
	Prefix       string // of the name
	Limit        int    // records at most. 0: 1000
	Bytes        int    // the page ends with the record that reaches so many bytes. 0: no bound
}

// IndexPage is what an IndexReader found. A page that is not Done may have any number of records,
// also none: a read looks at a bounded number of entries, whatever they are of.
type IndexPage struct {
	Records []Record
	Values  []bson.RawValue // the value by which each of Records was found
	Done    bool            // nothing of what was asked for remains
	// Last is the place of the last entry that was looked at, unless the page is Done: the next
	// page begins behind it.
	Last     bson.RawValue
	LastName string
	Looked   int // entries looked at
}

// indexedPrefix begins the names of the indexes that an IndexReader reads.
const indexedPrefix = "dbc_by_"

// IndexedName is the name of the index of a declared field.
func IndexedName(field string) string { return indexedPrefix + field }

// IndexedSpec is the index of a declared field, as databases make it.
func IndexedSpec(field string) bson.Raw {
	raw, err := bson.Marshal(bson.D{
		{Key: "v", Value: int32(2)},
		{Key: "key", Value: bson.D{{Key: field, Value: int32(1)}, {Key: "_id", Value: int32(1)}}},
		{Key: "name", Value: IndexedName(field)},
	})
	if err != nil {
		panic(err) // two strings and two numbers
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
	if first, _, _ := strings.Cut(field, "."); first == "_id" || first == ReservedField {
		return fmt.Errorf("%q cannot be declared: the database keeps %s itself", field, first)
	}
	return nil
}

// WithIndexed returns the kind with the indexes of its declared fields in its shape, for a database
// that builds them (Info.Indexes).
func WithIndexed(k KindSpec) KindSpec {
	k.Shape.Indexes = slices.Clone(k.Shape.Indexes)
	for _, field := range k.Indexed {
		k.Shape.Indexes = append(k.Shape.Indexes, IndexedSpec(field))
	}
	return k
}

// ValuesAt returns the values of a document at a dotted path, as an index has them: null where
// there is none, and each item of an array.
func ValuesAt(doc bson.Raw, path string) []bson.RawValue {
	v, err := doc.LookupErr(strings.Split(path, ".")...)
	if err != nil {
		v = bson.RawValue{Type: bson.TypeNull}
	}
	items, ok := v.ArrayOK()
	if !ok {
		return []bson.RawValue{v}
	}
	values, _ := items.Values()
	slices.SortFunc(values, CompareValues)
	return slices.CompactFunc(values, func(a, b bson.RawValue) bool { return CompareValues(a, b) == 0 })
}

// SameType reports whether two values are of one type in the order of values: all numbers are.
func SameType(a, b bson.RawValue) bool { return typeRank(a.Type) == typeRank(b.Type) }
