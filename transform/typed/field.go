package typed

import (
	"errors"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Field is one difference between the fields of two versions. Paths are dotted. Rename, Convert,
// Monotone, Split, Join, OldOnly and NewOnly make Fields.
type Field struct {
	old, new []value // empty on the side that does not have the field
	up, down func(in []bson.RawValue) ([]bson.RawValue, error)
	// def is the first value of a field that only one side has. Nil leaves the field out.
	def      any
	held     bool // only one side has the field
	monotone bool
}

// value is one field on one side, with the type that the functions take.
type value struct {
	path path
	typ  reflect.Type // nil: the type that the versions give the field
	// same reports whether two encodings hold an equal value, for example in integers of different
	// widths.
	same func(a, b bson.RawValue) bool
	zero bson.RawValue
}

func named(p string) value {
	return value{path: parsePath(p), same: func(a, b bson.RawValue) bool { return a.Equal(b) }}
}

func valueOf[T any](p string) value {
	var none T
	v := value{path: parsePath(p), typ: reflect.TypeFor[T]()}
	v.zero, _ = encodeValue(none) // a type that cannot be encoded fails at its first value
	v.same = func(a, b bson.RawValue) bool {
		x, errX := decodeValue[T](a)
		y, errY := decodeValue[T](b)
		return errX == nil && errY == nil && equal(x, y)
	}
	return v
}

// Rename gives a field another path. Its value stays as it is. Both types must have the field with
// the same type.
func Rename(old, new string) Field {
	return Field{old: []value{named(old)}, new: []value{named(new)}}
}

// Convert changes the value of a field, and its path if old and new differ. Each result is
// converted back at once, and a value that differs then is an error of the record. An absent field
// stays absent. Null stays null, unless the function takes a pointer.
func Convert[A, B any](old, new string, up func(A) (B, error), down func(B) (A, error)) Field {
	return Field{
		old: []value{valueOf[A](old)}, new: []value{valueOf[B](new)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return convert(in[0], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return convert(in[0], down, up) },
	}
}

// Monotone is a Convert whose functions are strictly increasing. Requests may therefore order by
// the field, and compare it with less and greater.
func Monotone[A, B any](old, new string, up func(A) (B, error), down func(B) (A, error)) Field {
	f := Convert(old, new, up, down)
	f.monotone = true
	return f
}

// Split turns one field into two. If a record of the new version has only one of the two, the other
// one counts as the zero value.
func Split[A, B, C any](old, new1, new2 string, up func(A) (B, C, error), down func(B, C) (A, error)) Field {
	return Field{
		old: []value{valueOf[A](old)}, new: []value{valueOf[B](new1), valueOf[C](new2)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return split(in[0], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return join(in[0], in[1], down, up) },
	}
}

// Join turns two fields into one. It is the reverse of Split: an absent field counts as the zero
// value if the other one is present.
func Join[A, B, C any](old1, old2, new string, up func(A, B) (C, error), down func(C) (A, B, error)) Field {
	return Field{
		old: []value{valueOf[A](old1), valueOf[B](old2)}, new: []value{valueOf[C](new)},
		up:   func(in []bson.RawValue) ([]bson.RawValue, error) { return join(in[0], in[1], up, down) },
		down: func(in []bson.RawValue) ([]bson.RawValue, error) { return split(in[0], down, up) },
	}
}

// OldOnly declares a field that only the old version has. The new version's records do not hold it;
// it survives in the old version's record as the complement. A record that the old version never
// had gets def, or no such field if def is nil.
func OldOnly(path string, def any) Field {
	return Field{old: []value{named(path)}, def: def, held: true}
}

// NewOnly declares a field that only the new version has. A record that the new version never had
// gets def, or no such field if def is nil.
func NewOnly(path string, def any) Field {
	return Field{new: []value{named(path)}, def: def, held: true}
}

// errBack reports that a value differs after a conversion there and back.
var errBack = errors.New("the value does not come back the same")

func convert[A, B any](in bson.RawValue, there func(A) (B, error), back func(B) (A, error)) ([]bson.RawValue, error) {
	// Only a pointer can be null in Go, so other functions cannot convert null.
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
	// Convert back at once: a value that does not survive must fail now, not after a rollback.
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
	// As in convert, a value that does not survive must fail now.
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
	// As in convert, values that do not survive must fail now.
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

// decodeValue returns the zero value for an absent field. It refuses null, which the driver would
// silently decode as the zero value.
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

// known decodes the common types without reflection, which is faster.
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
	x, errX := encodeValue(a) // equal bytes for NaN and for times in different zones
	y, errY := encodeValue(b)
	return errX == nil && errY == nil && x.Equal(y)
}
