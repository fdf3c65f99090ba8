package typed

import (
	"errors"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Field is something that changed between two versions, in terms of dotted paths. It is
// made by the functions of this package.
type Field struct {
	old, new []value // one each for most
	up, down func(in []bson.RawValue) ([]bson.RawValue, error)
	// def is what a field that one side has alone is written as where nothing is known of it.
	def      any
	held     bool // one side has it alone
	monotone bool
}

// value is a field's value on one side, with its type as functions take it.
type value struct {
	path path
	typ  reflect.Type // nil: as the versions' types have it
	// same reports whether two encodings are of one value, as a number of another width.
	same func(a, b bson.RawValue) bool
	zero bson.RawValue
}

func named(p string) value {
	return value{path: parsePath(p), same: func(a, b bson.RawValue) bool { return a.Equal(b) }}
}

func valueOf[T any](p string) value {
	var none T
	v := value{path: parsePath(p), typ: reflect.TypeFor[T]()}
	v.zero, _ = encodeValue(none) // a type that cannot be encoded fails with its first value
	v.same = func(a, b bson.RawValue) bool {
		x, errX := decodeValue[T](a)
		y, errY := decodeValue[T](b)
		return errX == nil && errY == nil && equal(x, y)
	}
	return v
}

// Rename gives a field another name, or another place: its value stays as it is. Both
// types must have it with the same type.
func Rename(old, new string) Field {
	return Field{old: []value{named(old)}, new: []value{named(new)}}
}

// Convert changes a field's value, and its path if old and new differ. Absence stays, and
// so does null unless the functions take a pointer.
func Convert[A, B any](old, new string, up func(A) (B, error), down func(B) (A, error)) Field {
	return Field{
		old: []value{valueOf[A](old)}, new: []value{valueOf[B](new)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return convert(in[0], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return convert(in[0], down, up) },
	}
}

// Monotone is Convert for functions that keep the order of values, strictly: of two values
// the greater one becomes the greater one. Requests may then order by the field, and
// compare it by less and greater.
func Monotone[A, B any](old, new string, up func(A) (B, error), down func(B) (A, error)) Field {
	f := Convert(old, new, up, down)
	f.monotone = true
	return f
}

// Split makes two fields of one. Where a record of the new version has only one of them,
// the other counts as the zero value.
func Split[A, B, C any](old, new1, new2 string, up func(A) (B, C, error), down func(B, C) (A, error)) Field {
	return Field{
		old: []value{valueOf[A](old)}, new: []value{valueOf[B](new1), valueOf[C](new2)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return split(in[0], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return join(in[0], in[1], down, up) },
	}
}

// Join makes one field of two: Split the other way.
func Join[A, B, C any](old1, old2, new string, up func(A, B) (C, error), down func(C) (A, B, error)) Field {
	return Field{
		old: []value{valueOf[A](old1), valueOf[B](old2)}, new: []value{valueOf[C](new)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return join(in[0], in[1], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return split(in[0], down, up) },
	}
}

// OldOnly is a field that the new version does not have. Records that came from there and
// that the old version never had get def; nil leaves it out.
func OldOnly(path string, def any) Field {
	return Field{old: []value{named(path)}, def: def, held: true}
}

// NewOnly is a field that the old version does not have. Records that come from there for
// the first time get def; nil leaves it out.
func NewOnly(path string, def any) Field {
	return Field{new: []value{named(path)}, def: def, held: true}
}

// errBack reports that a value is not what it was after a conversion there and back.
var errBack = errors.New("the value does not come back the same")

func convert[A, B any](in bson.RawValue, there func(A) (B, error), back func(B) (A, error)) ([]bson.RawValue, error) {
	if in.Type == bson.TypeNull && reflect.TypeFor[A]().Kind() != reflect.Pointer {
		return []bson.RawValue{in}, nil
	}
	a, err := decodeValue[A](in)
	if err != nil {
		return nil, err
	}
	b, err := there(a)
	if err != nil {
		return nil, err
	}
	again, err := back(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBack, err)
	}
	if !equal(a, again) {
		return nil, errBack
	}
	out, err := encodeValue(b)
	return []bson.RawValue{out}, err
}

func split[A, B, C any](in bson.RawValue, there func(A) (B, C, error), back func(B, C) (A, error)) ([]bson.RawValue, error) {
	a, err := decodeValue[A](in)
	if err != nil {
		return nil, err
	}
	b, c, err := there(a)
	if err != nil {
		return nil, err
	}
	again, err := back(b, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBack, err)
	}
	if !equal(a, again) {
		return nil, errBack
	}
	return encodeBoth(b, c)
}

func join[A, B, C any](in1, in2 bson.RawValue, there func(A, B) (C, error), back func(C) (A, B, error)) ([]bson.RawValue, error) {
	a, err := decodeValue[A](in1)
	if err != nil {
		return nil, err
	}
	b, err := decodeValue[B](in2)
	if err != nil {
		return nil, err
	}
	c, err := there(a, b)
	if err != nil {
		return nil, err
	}
	a2, b2, err := back(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBack, err)
	}
	if !equal(a, a2) || !equal(b, b2) {
		return nil, errBack
	}
	out, err := encodeValue(c)
	return []bson.RawValue{out}, err
}

func encodeBoth[B, C any](b B, c C) ([]bson.RawValue, error) {
	x, err := encodeValue(b)
	if err != nil {
		return nil, err
	}
	y, err := encodeValue(c)
	return []bson.RawValue{x, y}, err
}

func encodeValue(v any) (bson.RawValue, error) {
	if v == nil {
		return bson.RawValue{Type: bson.TypeNull}, nil
	}
	t, data, err := marshalValue(v)
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("encode %T: %w", v, err)
	}
	return bson.RawValue{Type: t, Value: data}, nil
}

// decodeValue is strict about null, of which the driver makes the zero value. What is
// absent is zero.
func decodeValue[T any](v bson.RawValue) (out T, err error) {
	if v.Type == 0 {
		return out, nil
	}
	if v.Type == bson.TypeNull && reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return out, fmt.Errorf("it is null, not %s", reflect.TypeFor[T]())
	}
	if known(v, &out) {
		return out, nil
	}
	if err := bson.UnmarshalValue(v.Type, v.Value, &out); err != nil {
		return out, fmt.Errorf("it is of type %s, not %s", v.Type, reflect.TypeFor[T]())
	}
	return out, nil
}

// known decodes the common case without the driver's reflection.
func known(v bson.RawValue, into any) (ok bool) {
	switch into := into.(type) {
	case *string:
		*into, ok = v.StringValueOK()
	case *int32:
		*into, ok = v.Int32OK()
	case *int64:
		*into, ok = v.Int64OK()
	case *bool:
		*into, ok = v.BooleanOK()
	case *float64:
		*into, ok = v.DoubleOK()
	}
	return ok
}

func equal[T any](a, b T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := encodeValue(a) // NaN, time zones
	y, errY := encodeValue(b)
	return errX == nil && errY == nil && x.Equal(y)
}
