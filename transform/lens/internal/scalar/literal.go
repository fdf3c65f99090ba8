package scalar

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// LiteralsOf maps a literal through a conversion. A value equals v before the conversion if and
// only if its converted value equals one of the results. The result is empty if no convertible
// value equals v. If there is no such exact result, LiteralsOf returns an error.
func LiteralsOf(v any, from, to Type) ([]any, error) {
	if v == nil {
		return []any{nil}, nil
	}
	if slices.Contains(times, from) {
		return timeLiterals(v, from, to)
	}
	// The source type decides which values can equal v.
	switch from {
	case String:
		s, ok := v.(string)
		if !ok {
			return nil, nil
		}
		return literalsOfText(s, to)
	case UUID:
		return nil, errUUIDLiteral
	case ObjectID: // to a string
		s, ok := v.(string)
		// Requests write an objectId as its digits, which are also the converted string.
		if _, err := convertedLiteral(AppendString(nil, s), String, ObjectID); !ok || err != nil {
			return nil, nil
		}
		return []any{s}, nil
	case Bool:
		b, ok := v.(bool)
		switch {
		case !ok:
			return nil, nil
		case to == String:
			return []any{fmt.Sprint(b)}, nil
		case b:
			return []any{int64(1)}, nil
		}
		return []any{int64(0)}, nil
	}
	return LiteralsOfNumber(v, from, to)
}

var errUUIDLiteral = errors.New("requests cannot write a uuid")

// exactFloat is the limit up to which all whole numbers are doubles.
const exactFloat = 1 << 53

// LiteralsOfNumber is LiteralsOf for a literal that is compared with numbers.
func LiteralsOfNumber(v any, from, to Type) ([]any, error) {
	n, ok := Rational(v)
	if !ok {
		if IsFloat(v) {
			return nil, errors.New("NaN and the infinities cannot be mapped")
		}
		return nil, nil
	}
	switch {
	case to == Bool:
		if n.IsInt() && n.Num().IsInt64() && (n.Num().Int64() == 0 || n.Num().Int64() == 1) {
			return []any{n.Num().Int64() == 1}, nil
		}
		return nil, nil
	case (to == String || to == Double || to == Decimal) && from == Number:
		return literalsOfAnyNumber(n, v, to)
	case to == String && from == Decimal:
		return nil, errors.New("one decimal can be written in many ways")
	case to == String && from == Double:
		f, exact := n.Float64()
		if !exact {
			return nil, nil
		}
		// Equality does not distinguish 0 and -0, but their texts differ.
		if f == 0 {
			return []any{"0", "-0"}, nil
		}
		s, _ := TextOf(appendDouble(nil, f), Double)
		return []any{s}, nil
	case to == String:
		// A whole-number type never holds a fraction.
		if !n.IsInt() {
			return nil, nil
		}
		return []any{n.Num().String()}, nil
	// 0.1 as a double and as a decimal are different numbers.
	case from == Decimal && (to == Double || to == Number) || from == Double && to == Decimal:
		if n.IsInt() && n.Num().CmpAbs(big.NewInt(exactFloat)) <= 0 {
			return []any{v}, nil
		}
		return nil, errors.New("a double and a decimal are equal only if they are whole numbers")
	}
	return []any{v}, nil
}

// literalsOfAnyNumber is LiteralsOfNumber for a field with numbers of any type.
func literalsOfAnyNumber(n *big.Rat, v any, to Type) ([]any, error) {
	switch {
	case !n.IsInt() || n.Num().CmpAbs(big.NewInt(exactFloat)) > 0:
		return nil, errors.New("a double and a decimal are equal only if they are whole numbers")
	case to != String:
		return []any{v}, nil
	case n.Sign() == 0:
		return []any{"0", "-0"}, nil
	}
	return []any{n.Num().String()}, nil
}

// literalsOfText is LiteralsOf for a string, which is converted like a value.
func literalsOfText(s string, to Type) ([]any, error) {
	// 1.0 and 1.00 are different strings and equal decimals.
	if to == Decimal {
		return nil, errors.New("several strings are the same decimal")
	}
	if to == Number {
		return literalsOfNumberText(s)
	}
	if to == UUID {
		return nil, errUUIDLiteral
	}
	val, err := convertedLiteral(AppendString(nil, s), String, to)
	if err != nil {
		return nil, nil
	}
	if to == ObjectID {
		return []any{s}, nil
	}
	lit, _ := Literal(bson.RawValue{Type: to.BSON(), Value: val})
	// Several texts convert to 0, and NaN equals nothing.
	if f, ok := lit.(float64); ok && (f == 0 || math.IsNaN(f)) {
		return nil, errors.New("several strings, or none, are the same double")
	}
	return []any{lit}, nil
}

// literalsOfNumberText is literalsOfText for a number of any type.
func literalsOfNumberText(s string) ([]any, error) {
	t, val, ok := ToNumber(String, AppendString(nil, s))
	if !ok {
		return nil, nil
	}
	lit, ok := Literal(bson.RawValue{Type: t.BSON(), Value: val})
	// Only such whole numbers have a single text.
	if n, whole := Rational(lit); !ok || !whole || !n.IsInt() || n.Sign() == 0 || n.Num().CmpAbs(big.NewInt(exactFloat)) > 0 {
		return nil, errors.New("several strings, or none, are the same number")
	}
	return []any{lit}, nil
}

func convertedLiteral(val []byte, from, to Type) ([]byte, error) {
	return Convert(new(edit.Editor), val, from, to)
}

func timeLiterals(v any, from, to Type) ([]any, error) {
	var val []byte
	switch v := v.(type) {
	case time.Time:
		// A stored date has milliseconds, so a finer time equals none.
		if from != Date || !time.UnixMilli(v.UnixMilli()).Equal(v) {
			return nil, nil
		}
		val = AppendLong(nil, v.UnixMilli())
	case string:
		if from != RFC3339 {
			return nil, nil
		}
		val = AppendString(nil, v)
	default:
		n, ok := Rational(v)
		if from != Epoch && from != Millis || !ok || !n.IsInt() || !n.Num().IsInt64() {
			return nil, nil
		}
		val = AppendLong(nil, n.Num().Int64())
	}
	// A time that cannot be converted exactly does not occur in the other version.
	made, err := convertedLiteral(val, from, to)
	if err != nil {
		return nil, nil
	}
	lit, _ := Literal(bson.RawValue{Type: to.BSON(), Value: made})
	return []any{lit}, nil
}

// Literal returns the literal of a value, in the Go types of transform.Condition. It returns false
// if requests cannot write the value.
func Literal(v bson.RawValue) (any, bool) {
	switch v.Type {
	case bson.TypeString:
		return StringOf(v.Value), true
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := Whole(v.Value, TypeOf(v.Type))
		return n, true
	case bson.TypeDouble:
		return v.Double(), true
	case bson.TypeBoolean:
		return v.Boolean(), true
	case bson.TypeDateTime:
		return time.UnixMilli(v.DateTime()).UTC(), true
	case bson.TypeObjectID:
		return v.ObjectID().Hex(), true
	case bson.TypeNull:
		return nil, true
	default:
		return nil, false
	}
}

// SameLiteral reports whether two literals are equal by the rules of transform.Condition. Numbers
// compare by value.
func SameLiteral(a, b any) bool {
	if x, ok := a.(time.Time); ok {
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	}
	x, okX := Rational(a)
	y, okY := Rational(b)
	// Numbers compare by value, whatever their types.
	if okX || okY {
		return okX && okY && x.Cmp(y) == 0
	}
	switch a.(type) {
	case string, bool, nil:
		return a == b
	default:
		return false
	}
}

// IsFloat reports whether a literal is a floating-point number.
func IsFloat(v any) bool {
	_, ok := v.(float64)
	return ok
}

// Rational returns the value of a literal that is a number: int64, uint64 or float64. It returns
// false for other literals, for NaN and for the infinities.
func Rational(v any) (*big.Rat, bool) {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v), true
	case uint64:
		return new(big.Rat).SetUint64(v), true
	case float64:
		r := new(big.Rat).SetFloat64(v)
		return r, r != nil
	default:
		return nil, false
	}
}
