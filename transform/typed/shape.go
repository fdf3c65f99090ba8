package typed

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Shape describes how a type is encoded in a document. Values of types with equal shapes are
// encoded alike.
type Shape struct {
	// Name identifies a type that is not an object, for example "string" or "[]int32".
	Name string
	// Fields are the fields of an object, ordered by name. Nil means that the type is not an object.
	Fields []ShapeField
}

// ShapeField is a field of an object. Name is its name in the document.
type ShapeField struct {
	Name  string
	Shape Shape
}

// String describes the shape in one line.
func (s Shape) String() string {
	if s.Fields == nil {
		return s.Name
	}
	parts := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		parts[i] = f.Name + " " + f.Shape.String()
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (s Shape) field(name string) (Shape, bool) {
	i := slices.IndexFunc(s.Fields, func(f ShapeField) bool { return f.Name == name })
	if i < 0 {
		return Shape{}, false
	}
	return s.Fields[i].Shape, true
}

// at returns the shape at a path.
func (s Shape) at(p path) (Shape, bool) {
	for _, name := range p {
		var ok bool
		if s, ok = s.field(name); !ok {
			return Shape{}, false
		}
	}
	return s, true
}

// path names a field of a document by the names of its parents, from the outside in, and its own.
type path []string

func parsePath(dotted string) path { return strings.Split(dotted, ".") }

func (p path) String() string { return strings.Join(p, ".") }

// within reports whether p is q or a field inside q.
func (p path) within(q path) bool { return len(p) >= len(q) && slices.Equal(p[:len(q)], q) }

// shapeOf returns the shape of a Go type as the bson package encodes it. A type with its own
// encoding is identified by its name.
func shapeOf(t reflect.Type) (Shape, error) { return shapeIn(t, nil) }

var (
	valueMarshaler = reflect.TypeFor[bson.ValueMarshaler]()
	docMarshaler   = reflect.TypeFor[bson.Marshaler]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	restType       = reflect.TypeFor[Rest]()
)

// shapeIn is shapeOf for a type inside the types in around.
func shapeIn(t reflect.Type, around []reflect.Type) (Shape, error) {
	// The fields of a type with its own encoding say nothing about the document.
	for _, m := range []reflect.Type{valueMarshaler, docMarshaler, textMarshaler} {
		if t.Implements(m) || reflect.PointerTo(t).Implements(m) {
			return Shape{Name: strings.TrimPrefix(t.String(), "*")}, nil
		}
	}
	inner := func() (Shape, error) { return shapeIn(t.Elem(), around) }
	switch t.Kind() {
	case reflect.Pointer:
		return inner()
	case reflect.Slice, reflect.Array:
		s, err := inner()
		return Shape{Name: "[]" + s.String()}, err
	case reflect.Map:
		s, err := inner()
		return Shape{Name: "map of " + s.String()}, err
	case reflect.Struct:
		// The driver encodes these structs as single values.
		if strings.HasPrefix(t.PkgPath(), "go.mongodb.org/") || t.PkgPath() == "time" {
			return Shape{Name: t.String()}, nil
		}
		if slices.Contains(around, t) {
			return Shape{Name: t.String()}, nil // a recursive type would have an infinite shape
		}
		return structShape(t, append(around[:len(around):len(around)], t))
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128, reflect.Uintptr, reflect.Invalid:
		return Shape{}, fmt.Errorf("a %s cannot be stored", t)
	default:
		return Shape{Name: t.Kind().String()}, nil
	}
}

func structShape(t reflect.Type, around []reflect.Type) (Shape, error) {
	out := Shape{Fields: []ShapeField{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("bson"), ",")
		if name == "-" || !f.IsExported() || f.Type == restType {
			continue
		}
		s, err := shapeIn(f.Type, around)
		if err != nil {
			return out, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		if slices.Contains(strings.Split(options, ","), "inline") {
			out.Fields = append(out.Fields, s.Fields...) // an inline map holds unknown fields and adds none
			continue
		}
		// The driver names a field without a tag like this.
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		out.Fields = append(out.Fields, ShapeField{name, s})
	}
	slices.SortFunc(out.Fields, func(a, b ShapeField) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// equalShapes compares shapes by their text, which lists fields in order of their names.
func equalShapes(a, b Shape) bool { return a.String() == b.String() }
