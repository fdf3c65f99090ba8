package typed

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// kindCodec is the codec of a kind whose struct field, or map element, has one type.
type kindCodec interface {
	decode(doc bson.Raw) (reflect.Value, error)
	encode(v reflect.Value) (bson.Raw, error)
	// merge writes v over a document if the codec is a Merger. Otherwise ok is false.
	merge(doc bson.Raw, v reflect.Value) (merged bson.Raw, ok bool, err error)
	fields() ([]string, error)
}

// otherKind is the kindCodec of a Codec for values of type t.
type otherKind struct {
	c Codec
	t reflect.Type
}

func (k otherKind) decode(doc bson.Raw) (reflect.Value, error) {
	v, err := k.c.Decode(doc)
	// Setting a struct field to another type would panic.
	if err == nil && reflect.TypeOf(v) != k.t {
		err = fmt.Errorf("its codec makes a %T", v)
	}
	return reflect.ValueOf(v), err
}

func (k otherKind) encode(v reflect.Value) (bson.Raw, error) { return k.c.Encode(v.Interface()) }

func (k otherKind) merge(doc bson.Raw, v reflect.Value) (bson.Raw, bool, error) {
	c, ok := k.c.(Merger)
	if !ok {
		return nil, false, nil
	}
	merged, err := c.Merge(doc, v.Interface())
	return merged, true, err
}

func (k otherKind) fields() ([]string, error) { return k.c.Fields() }

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

func (k structKind) fields() ([]string, error) { return fieldsOf(k.t) }

// parseSide reads the tags of a struct whose fields are kinds.
func parseSide(t reflect.Type, codecOf func(reflect.Type) Codec) (side, error) {
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
			m, err := parseMember(f, tag, codecOf)
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

func parseMember(f reflect.StructField, tag string, codecOf func(reflect.Type) Codec) (member, error) {
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
	if codecOf != nil {
		if c := codecOf(typ); c != nil {
			m.codec = otherKind{c, typ}
		}
	}
	if m.codec == nil {
		m.codec = structKind{typ}
		m.rest = restOf(reflect.New(structKind{typ}.elem()).Elem()).IsValid()
	}
	var err error
	m.fields, err = m.codec.fields()
	return m, err
}
