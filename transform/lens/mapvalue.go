package lens

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

// literalsOf maps a literal through a conversion. A value equals v before the conversion if and
// only if its converted value equals one of the results. The result is empty if no value equals v.
func literalsOf(v any, from, to valueType) ([]any, error) {
	if v == nil {
		return []any{nil}, nil
	}
	if slices.Contains(times, from) {
		return timeLiterals(v, from, to)
	}
	// The source type decides which values can equal v.
	switch from {
	case tString:
		s, ok := v.(string)
		if !ok {
			return nil, nil
		}
		return literalsOfText(s, to)
	case tUUID:
		return nil, errUUIDLiteral
	case tObjectID: // to a string
		s, ok := v.(string)
		// Requests write an objectId as its digits, which are also the converted string.
		if _, err := convertedLiteral(appendString(nil, s), tString, tObjectID); !ok || err != nil {
			return nil, nil
		}
		return []any{s}, nil
	case tBool:
		b, ok := v.(bool)
		switch {
		case !ok:
			return nil, nil
		case to == tString:
			return []any{fmt.Sprint(b)}, nil
		case b:
			return []any{int64(1)}, nil
		}
		return []any{int64(0)}, nil
	}
	return literalsOfNumber(v, from, to)
}

var errUUIDLiteral = errors.New("requests cannot write a uuid")

// exactFloat is the limit up to which all whole numbers are doubles.
const exactFloat = 1 << 53

func literalsOfNumber(v any, from, to valueType) ([]any, error) {
	n, ok := rational(v)
	if !ok {
		if isFloat(v) {
			return nil, errors.New("NaN and the infinities cannot be mapped")
		}
		return nil, nil
	}
	switch {
	case to == tBool:
		if n.IsInt() && n.Num().IsInt64() && (n.Num().Int64() == 0 || n.Num().Int64() == 1) {
			return []any{n.Num().Int64() == 1}, nil
		}
		return nil, nil
	case (to == tString || to == tDouble || to == tDecimal) && from == tNumber:
		return literalsOfAnyNumber(n, v, to)
	case to == tString && from == tDecimal:
		return nil, errors.New("equal decimals are written in many ways")
	case to == tString && from == tDouble:
		f, exact := n.Float64()
		if !exact {
			return nil, nil
		}
		// Equality does not distinguish 0 and -0, but their texts differ.
		if f == 0 {
			return []any{"0", "-0"}, nil
		}
		s, _ := textOf(appendDouble(nil, f), tDouble)
		return []any{s}, nil
	case to == tString:
		// A whole-number type never holds a fraction.
		if !n.IsInt() {
			return nil, nil
		}
		return []any{n.Num().String()}, nil
	// 0.1 as a double and as a decimal are different numbers.
	case from == tDecimal && (to == tDouble || to == tNumber) || from == tDouble && to == tDecimal:
		if n.IsInt() && n.Num().CmpAbs(big.NewInt(exactFloat)) <= 0 {
			return []any{v}, nil
		}
		return nil, errors.New("a double and a decimal are worth the same only where they are whole")
	}
	return []any{v}, nil
}

// literalsOfAnyNumber is literalsOfNumber for a field with numbers of any type.
func literalsOfAnyNumber(n *big.Rat, v any, to valueType) ([]any, error) {
	switch {
	case !n.IsInt() || n.Num().CmpAbs(big.NewInt(exactFloat)) > 0:
		return nil, errors.New("a double and a decimal are worth the same only where they are whole")
	case to != tString:
		return []any{v}, nil
	case n.Sign() == 0:
		return []any{"0", "-0"}, nil
	}
	return []any{n.Num().String()}, nil
}

// literalsOfText is literalsOf for a string, which is converted like a value.
func literalsOfText(s string, to valueType) ([]any, error) {
	// 1.0 and 1.00 are different strings and equal decimals.
	if to == tDecimal {
		return nil, errors.New("different strings are decimals that are equal")
	}
	if to == tNumber {
		return literalsOfNumberText(s)
	}
	if to == tUUID {
		return nil, errUUIDLiteral
	}
	val, err := convertedLiteral(appendString(nil, s), tString, to)
	if err != nil {
		return nil, nil
	}
	if to == tObjectID {
		return []any{s}, nil
	}
	lit, _ := literal(bson.RawValue{Type: to.bson(), Value: val})
	// Several texts convert to 0, and NaN equals nothing.
	if f, ok := lit.(float64); ok && (f == 0 || math.IsNaN(f)) {
		return nil, errors.New("different strings are doubles that are equal, or none is")
	}
	return []any{lit}, nil
}

// literalsOfNumberText is literalsOfText for a number of any type.
func literalsOfNumberText(s string) ([]any, error) {
	t, val, ok := toNumber(tString, appendString(nil, s))
	if !ok {
		return nil, nil
	}
	lit, ok := literal(bson.RawValue{Type: t.bson(), Value: val})
	// Only such whole numbers have a single text.
	if n, whole := rational(lit); !ok || !whole || !n.IsInt() || n.Sign() == 0 || n.Num().CmpAbs(big.NewInt(exactFloat)) > 0 {
		return nil, errors.New("different strings are numbers that are equal, or none is")
	}
	return []any{lit}, nil
}

func convertedLiteral(val []byte, from, to valueType) ([]byte, error) {
	return convertValue(new(edit.Editor), val, from, to)
}

func timeLiterals(v any, from, to valueType) ([]any, error) {
	var val []byte
	switch v := v.(type) {
	case time.Time:
		// A stored date has milliseconds, so a finer time equals none.
		if from != tDate || !time.UnixMilli(v.UnixMilli()).Equal(v) {
			return nil, nil
		}
		val = appendLong(nil, v.UnixMilli())
	case string:
		if from != tRFC3339 {
			return nil, nil
		}
		val = appendString(nil, v)
	default:
		n, ok := rational(v)
		if from != tEpoch && from != tMillis || !ok || !n.IsInt() || !n.Num().IsInt64() {
			return nil, nil
		}
		val = appendLong(nil, n.Num().Int64())
	}
	// A time that cannot be converted exactly does not occur in the other version.
	made, err := convertedLiteral(val, from, to)
	if err != nil {
		return nil, nil
	}
	lit, _ := literal(bson.RawValue{Type: to.bson(), Value: made})
	return []any{lit}, nil
}

// literal returns a value as requests write it. ok is false if requests cannot write it.
func literal(v bson.RawValue) (any, bool) {
	switch v.Type {
	case bson.TypeString:
		return stringOf(v.Value), true
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := whole(v.Value, typeOf(v.Type))
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

// sameLiteral reports whether two literals are equal, by the rules of transform.Condition.
func sameLiteral(a, b any) bool {
	if x, ok := a.(time.Time); ok {
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	}
	x, okX := rational(a)
	y, okY := rational(b)
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

func isFloat(v any) bool {
	_, ok := v.(float64)
	return ok
}

// rational reads a number of any type, except NaN and the infinities.
func rational(v any) (*big.Rat, bool) {
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
