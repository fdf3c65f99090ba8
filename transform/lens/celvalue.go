package lens

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// These types carry values through compute. Strings, bools, doubles, nulls and dates are CEL's own
// types. int and long are CEL's int, and binary data of the plain subtype is CEL's bytes. Values of
// all other types pass unchanged: CEL can compare and return them, and can convert a decimal or
// objectId to a string. Lists and objects that an expression returns unchanged keep their bytes.

// opaque is a BSON value of a type that CEL lacks.
type opaque struct{ v bson.RawValue }

var (
	celLong     = types.NewOpaqueType("long")
	celDecimal  = types.NewOpaqueType("decimal")
	celObjectID = types.NewOpaqueType("objectId")
	celOther    = types.NewOpaqueType("bson")
)

func (o opaque) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s cannot be made a %s", edit.TypeName(o.v.Type), t)
}

func (o opaque) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("%s cannot be made a %s", edit.TypeName(o.v.Type), t.TypeName())
}

func (o opaque) Equal(other ref.Val) ref.Val {
	p, ok := other.(opaque)
	return types.Bool(ok && edit.SameValue(o.v, p.v))
}

func (o opaque) Value() any { return o.v }

func (o opaque) Type() ref.Type {
	switch o.v.Type {
	case bson.TypeInt64:
		return celLong
	case bson.TypeDecimal128:
		return celDecimal
	case bson.TypeObjectID:
		return celObjectID
	default:
		return celOther
	}
}

// document and list are CEL's map and list, with their original bytes.
type document struct {
	orderedMap
	v bson.RawValue
}

type list struct {
	traits.Lister
	v bson.RawValue
}

// orderedMap iterates in a fixed order. Results must not depend on the order of Go's maps.
type orderedMap struct {
	traits.Mapper
	keys []ref.Val
}

func (m orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.keys).Iterator()
}

// ordered returns a map that an expression made, in the order of its keys.
func ordered(v ref.Val) ref.Val {
	m, ok := v.(traits.Mapper)
	if !ok {
		return v
	}
	var keys []ref.Val
	// Sorting by type and value works for keys of mixed types, which CEL allows.
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(x, y ref.Val) int {
		return strings.Compare(fmt.Sprintf("%T %v", x, x.Value()), fmt.Sprintf("%T %v", y, y.Value()))
	})
	return orderedMap{m, keys}
}

// orderedConstructor is the part of a CEL plan that makes a map.
type orderedConstructor struct{ interpreter.InterpretableV2 }

func (c orderedConstructor) Exec(f *interpreter.ExecutionFrame) ref.Val {
	return ordered(c.InterpretableV2.Exec(f))
}

func (c orderedConstructor) Eval(a interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(a))
}

func orderMaps(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	// Go's map order is random. Two controllers must not compute different bytes.
	if c, ok := i.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return orderedConstructor{i}, nil
	}
	return i, nil
}

// toCEL converts a value for CEL. Values may be nested as deeply as the database allows.
func toCEL(v bson.RawValue) (ref.Val, error) {
	switch v.Type {
	case 0, bson.TypeNull:
		return types.NullValue, nil
	case bson.TypeString:
		// Elements accepts a string without its final zero, and the editor did not open this level.
		if _, ok := v.StringValueOK(); !ok {
			return nil, edit.ErrMalformed
		}
		return types.String(scalar.StringOf(v.Value)), nil
	// Both become CEL's int. long(x) makes a long again.
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := scalar.Whole(v.Value, scalar.TypeOf(v.Type))
		return types.Int(n), nil
	case bson.TypeDouble:
		return types.Double(math.Float64frombits(binary.LittleEndian.Uint64(v.Value))), nil
	case bson.TypeBoolean:
		return types.Bool(v.Value[0] == 1), nil
	case bson.TypeDateTime:
		return types.Timestamp{Time: time.UnixMilli(int64(binary.LittleEndian.Uint64(v.Value))).UTC()}, nil
	case bson.TypeBinary:
		// Other subtypes, such as UUIDs, would lose their subtype as plain bytes.
		if v.Value[4] == bson.TypeBinaryGeneric {
			return types.Bytes(v.Value[5:]), nil
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elems, err := bson.Raw(v.Value).Elements()
		if err != nil {
			return nil, edit.ErrMalformed
		}
		// Convert the content as well as keeping the bytes: expressions may read single fields.
		keys, values := make([]ref.Val, len(elems)), make([]ref.Val, len(elems))
		m := make(map[ref.Val]ref.Val, len(elems))
		for i, e := range elems {
			if values[i], err = toCEL(e.Value()); err != nil {
				return nil, err
			}
			keys[i] = types.String(e.Key())
			m[keys[i]] = values[i]
		}
		if v.Type == bson.TypeArray {
			return list{types.NewRefValList(types.DefaultTypeAdapter, values), v}, nil
		}
		return document{orderedMap{types.NewRefValMap(types.DefaultTypeAdapter, m), keys}, v}, nil
	}
	return opaque{v}, nil
}

// fromCEL converts a result to BSON. A whole number is an int if it fits, as in a lens.
func fromCEL(v ref.Val, depth int) (bson.RawValue, error) {
	made := func(t bson.Type, val []byte) (bson.RawValue, error) {
		return bson.RawValue{Type: t, Value: val}, nil
	}
	// A result may nest more deeply than its inputs. Limit it before the database does.
	if depth > 2*edit.MaxDepth {
		return bson.RawValue{}, fmt.Errorf("the result is nested more than %d deep", 2*edit.MaxDepth)
	}
	switch v := v.(type) {
	case opaque:
		return v.v, nil
	// Return the original bytes, so that a value that was only passed on stays the same.
	case document:
		return v.v, nil
	case list:
		return v.v, nil
	case types.Null:
		return made(bson.TypeNull, nil)
	case types.String:
		return scalar.StringValue(string(v)), nil
	case types.Bool:
		b := byte(0)
		if v {
			b = 1
		}
		return made(bson.TypeBoolean, []byte{b})
	case types.Int:
		// The same rule as for whole numbers in a lens's text.
		if n := int32(v); types.Int(n) == v {
			return made(bson.TypeInt32, binary.LittleEndian.AppendUint32(nil, uint32(n)))
		}
		return made(bson.TypeInt64, binary.LittleEndian.AppendUint64(nil, uint64(v)))
	case types.Double:
		return made(bson.TypeDouble, binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v))))
	case types.Bytes:
		b := append(binary.LittleEndian.AppendUint32(nil, uint32(len(v))), bson.TypeBinaryGeneric)
		return made(bson.TypeBinary, append(b, v...))
	case types.Timestamp:
		// BSON dates have milliseconds. Truncating would lose data without an error.
		if v.Nanosecond()%int(time.Millisecond) != 0 {
			return bson.RawValue{}, fmt.Errorf("a date has milliseconds, and the result %s has more", v.Format(time.RFC3339Nano))
		}
		return made(bson.TypeDateTime, binary.LittleEndian.AppendUint64(nil, uint64(v.UnixMilli())))
	case traits.Lister:
		a, size := bson.A{}, 0
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := fromCEL(it.Next(), depth+1)
			if err != nil {
				return item, err
			}
			// Items that are one value in CEL are copies in BSON.
			if size += itemBytes + len(item.Value); size > maxText {
				return bson.RawValue{}, errTooMuch
			}
			a = append(a, item)
		}
		return marshalled(a)
	case traits.Mapper:
		d, size := bson.D{}, 0
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.(types.String)
			// BSON field names end at a zero byte.
			if !ok || strings.ContainsRune(string(name), 0) {
				return bson.RawValue{}, fmt.Errorf("the result has the key %v; names of fields are strings without NUL", key.Value())
			}
			item, err := fromCEL(v.Get(key), depth+1)
			if err != nil {
				return item, err
			}
			if size += itemBytes + len(name) + len(item.Value); size > maxText {
				return bson.RawValue{}, errTooMuch
			}
			d = append(d, bson.E{Key: string(name), Value: item})
		}
		return marshalled(d)
	}
	return bson.RawValue{}, fmt.Errorf("the result is of CEL's type %s, which BSON does not have", v.Type().TypeName())
}

func celError(err error) ref.Val { return types.WrapErr(err) }

func marshalled(v any) (bson.RawValue, error) {
	t, val, err := bson.MarshalValue(v)
	return bson.RawValue{Type: t, Value: val}, err
}
