package typed

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// KindCodec is the Codec of one kind of a Group. ForKind and ForType make it.
type KindCodec interface {
	decode(doc bson.Raw) (reflect.Value, error)
	encode(v reflect.Value) (bson.Raw, error)
	// merge writes v over a document if the codec is a Merger. Otherwise ok is false.
	merge(doc bson.Raw, v reflect.Value) (merged bson.Raw, ok bool, err error)
	shape() (Shape, error)
	typ() reflect.Type
}

// ForKind makes the codec of a kind whose struct field has type T or is a map of T. For a kind with
// one record T is a pointer, as the types of protobuf messages are.
func ForKind[T any](c Codec[T]) KindCodec { return kindCodec[T]{c} }

type kindCodec[T any] struct{ c Codec[T] }

func (k kindCodec[T]) decode(doc bson.Raw) (reflect.Value, error) {
	v, err := k.c.Decode(doc)
	return reflect.ValueOf(v), err
}

func (k kindCodec[T]) encode(v reflect.Value) (bson.Raw, error) {
	return k.c.Encode(v.Interface().(T))
}

func (k kindCodec[T]) merge(doc bson.Raw, v reflect.Value) (bson.Raw, bool, error) {
	c, ok := k.c.(Merger[T])
	if !ok {
		return nil, false, nil
	}
	merged, err := c.Merge(doc, v.Interface().(T))
	return merged, true, err
}

func (k kindCodec[T]) shape() (Shape, error) { return k.c.Shape() }
func (k kindCodec[T]) typ() reflect.Type     { return reflect.TypeFor[T]() }

// ForType is ForKind for a type known only at run time. c is the codec of its values, and must
// return values of type t.
func ForType(t reflect.Type, c Codec[any]) KindCodec { return typeCodec{kindCodec[any]{c}, t} }

type typeCodec struct {
	kindCodec[any]
	t reflect.Type
}

func (c typeCodec) decode(doc bson.Raw) (reflect.Value, error) {
	v, err := c.c.Decode(doc)
	// Setting a struct field to another type would panic.
	if err == nil && reflect.TypeOf(v) != c.t {
		err = fmt.Errorf("its codec makes a %T", v)
	}
	return reflect.ValueOf(v), err
}

func (c typeCodec) typ() reflect.Type { return c.t }

// structKind is the codec of a struct with bson tags, or of a pointer to one.
type structKind struct{ t reflect.Type }

func (k structKind) elem() reflect.Type {
	if k.t.Kind() == reflect.Pointer {
		return k.t.Elem()
	}
	return k.t
}

func (k structKind) decode(doc bson.Raw) (reflect.Value, error) {
	v := reflect.New(k.elem())
	if err := decodeStruct(doc, v.Interface()); err != nil {
		return v, err
	}
	if k.t.Kind() == reflect.Pointer {
		return v, nil
	}
	return v.Elem(), nil
}

func (k structKind) encode(v reflect.Value) (bson.Raw, error) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("it is nil: leave it out of the map")
	}
	return encodeStruct(v.Interface())
}

func (k structKind) merge(bson.Raw, reflect.Value) (bson.Raw, bool, error) { return nil, false, nil }

func (k structKind) shape() (Shape, error) { return shapeOf(k.t) }
func (k structKind) typ() reflect.Type     { return k.t }

// codecs finds the codecs that a group declares.
type codecs struct {
	byKind map[string]KindCodec
	byType func(reflect.Type) (KindCodec, bool) // may be nil
}

// of returns the declared codec of a kind and its type. Nil means a struct with bson tags.
func (c codecs) of(kind string, t reflect.Type) KindCodec {
	if of := c.byKind[kind]; of != nil || c.byType == nil {
		return of
	}
	of, _ := c.byType(t)
	return of
}

// parseSide reads the tags of a struct whose fields are kinds.
func parseSide(t reflect.Type, codecs codecs) (side, error) {
	s := side{name: -1}
	if t.Kind() != reflect.Struct {
		return s, fmt.Errorf("%s is no struct whose fields are kinds", t)
	}
	var errs []error
	single := false
	// Collect the errors of all fields, so that the author sees them at once.
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("typed")
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s.%s: no tag typed:\"kind=...\"", t, f.Name))
		case !f.IsExported():
			errs = append(errs, fmt.Errorf("%s.%s: it is not exported", t, f.Name))
		case tag == "name" && f.Type.Kind() == reflect.String:
			s.name = i
		default:
			m, err := parseMember(f, tag, codecs)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.%s: %w", t, f.Name, err))
			}
			m.field = i
			single = single || !m.many
			s.members = append(s.members, m)
		}
	}
	// The anchor of a group must be a record whose key follows from the group's name.
	if len(errs) == 0 && !single && !s.byContent() {
		errs = append(errs, fmt.Errorf("%s: one of its kinds must be a pointer, one record that stands for the group", t))
	}
	return s, errors.Join(errs...)
}

func parseMember(f reflect.StructField, tag string, codecs codecs) (member, error) {
	m := member{many: f.Type.Kind() == reflect.Map}
	var key string
	for _, option := range strings.Split(tag, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "kind":
			m.kind.Name = value
		case "key":
			key = value
		case "group":
			m.content = parsePath(value)
		case "fixed":
			m.kind.Fixed = true
		default:
			// A misspelled option must not be ignored: it could change the keys of all records.
			return m, fmt.Errorf("unknown option %q; allowed: kind, key, group, fixed", option)
		}
	}
	typ := f.Type
	switch {
	case m.kind.Name == "":
		return m, errors.New("no kind=")
	case m.many && typ.Key().Kind() != reflect.String:
		return m, fmt.Errorf("a map of records is by strings, not %s", typ.Key())
	case m.many:
		typ = typ.Elem()
	case typ.Kind() != reflect.Pointer:
		return m, fmt.Errorf("a kind is a pointer or a map, not %s", typ)
	}
	switch {
	case m.content != nil && key != "":
		return m, errors.New("a group goes by key= or by group=, not both")
	case m.content != nil && !m.many:
		return m, errors.New("a kind with group= is a map")
	case m.content == nil:
		var err error
		if m.key, err = parsePattern(key, m.many); err != nil {
			return m, err
		}
	}
	// Only structs with bson tags can have a field of type Rest. A codec keeps unknown fields itself.
	m.codec = codecs.of(m.kind.Name, typ)
	if m.codec == nil {
		m.codec = structKind{typ}
		m.rest = restOf(reflect.New(structKind{typ}.elem()).Elem()).IsValid()
	}
	if m.codec.typ() != typ {
		return m, fmt.Errorf("its codec is for %s, not %s", m.codec.typ(), typ)
	}
	var err error
	// Fields of a document are compared one by one, so the type must be an object.
	if m.shape, err = m.codec.shape(); err == nil && m.shape.Fields == nil {
		err = fmt.Errorf("%s is no struct", typ)
	}
	return m, err
}
