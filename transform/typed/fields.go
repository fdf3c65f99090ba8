package typed

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var (
	valueMarshaler = reflect.TypeFor[bson.ValueMarshaler]()
	docMarshaler   = reflect.TypeFor[bson.Marshaler]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	restType       = reflect.TypeFor[Rest]()
)

// fieldsOf returns the names of the fields that the bson package gives a struct, or a pointer to
// one, in a document. It fails for other types.
func fieldsOf(t reflect.Type) ([]string, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	// The fields of a type with its own encoding say nothing about the document, nor do those of the
	// structs that the driver encodes as single values.
	own := slices.ContainsFunc([]reflect.Type{valueMarshaler, docMarshaler, textMarshaler}, func(m reflect.Type) bool {
		return t.Implements(m) || reflect.PointerTo(t).Implements(m)
	})
	if t.Kind() != reflect.Struct || own || strings.HasPrefix(t.PkgPath(), "go.mongodb.org/") || t.PkgPath() == "time" {
		return nil, fmt.Errorf("%s is no struct", t)
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("bson"), ",")
		if name == "-" || !f.IsExported() || f.Type == restType {
			continue
		}
		if slices.Contains(strings.Split(options, ","), "inline") {
			// An inline map holds unknown fields and adds none.
			if f.Type.Kind() == reflect.Map {
				continue
			}
			inner, err := fieldsOf(f.Type)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
			}
			out = append(out, inner...)
			continue
		}
		// The driver names a field without a tag like this.
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		out = append(out, name)
	}
	return out, nil
}

// path names a field of a document by the names of its parents, from the outside in, and its own.
type path []string

func parsePath(dotted string) path { return strings.Split(dotted, ".") }

func (p path) String() string { return strings.Join(p, ".") }
