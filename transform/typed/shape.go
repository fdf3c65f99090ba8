package typed

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Shape is what a type looks like in a document. Values of equal shapes are encoded
// alike.
type Shape struct {
	// Name is that of a type whose fields cannot be named one by one: "string", "[]int32".
	Name string
	// Fields are those of an object, ordered by name; nil for any other type.
	Fields []ShapeField
}

// ShapeField is a field of an object, under the name that it has in the document.
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

// field finds a field of an object.
func (s Shape) field(name string) (Shape, bool) {
	i := slices.IndexFunc(s.Fields, func(f ShapeField) bool { return f.Name == name })
	if i < 0 {
		return Shape{}, false
	}
	return s.Fields[i].Shape, true
}

// at finds the shape at a path.
func (s Shape) at(p path) (Shape, bool) {
	for _, name := range p {
		var ok bool
		if s, ok = s.field(name); !ok {
			return Shape{}, false
		}
	}
	return s, true
}

// path is a field of a document, from the outside in.
type path []string

func parsePath(dotted string) path { return strings.Split(dotted, ".") }

func (p path) String() string { return strings.Join(p, ".") }

// within reports whether p is q or a field inside of it.
func (p path) within(q path) bool { return len(p) >= len(q) && slices.Equal(p[:len(q)], q) }

// shapeOf is the shape of a Go type as the bson package encodes it. Types that encode
// themselves are known by their name.
func shapeOf(t reflect.Type) (Shape, error) { return shapeIn(t, nil) }

var (
	valueMarshaler = reflect.TypeFor[bson.ValueMarshaler]()
	docMarshaler   = reflect.TypeFor[bson.Marshaler]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	restType       = reflect.TypeFor[Rest]()
)

func shapeIn(t reflect.Type, around []reflect.Type) (Shape, error) {
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
		if strings.HasPrefix(t.PkgPath(), "go.mongodb.org/") || t.PkgPath() == "time" {
			return Shape{Name: t.String()}, nil
		}
		if slices.Contains(around, t) {
			return Shape{Name: t.String()}, nil // within itself
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
			out.Fields = append(out.Fields, s.Fields...) // a map of unknown fields has none
			continue
		}
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		out.Fields = append(out.Fields, ShapeField{name, s})
	}
	slices.SortFunc(out.Fields, func(a, b ShapeField) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// equalShapes compares shapes; fields are in order.
func equalShapes(a, b Shape) bool { return a.String() == b.String() }
