package lenstest

import (
	"math"
	"math/big"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform"
)

// Holds reports whether a decoded value satisfies a condition, as transform.Condition defines it.
// there is false for an absent value. path leads from v to the field of the condition.
func Holds(v any, there bool, path []string, c transform.Condition) bool {
	if len(path) == 0 {
		return compares(v, there, c)
	}
	if path[0] == "*" {
		switch v := v.(type) {
		case bson.D:
			for _, e := range v {
				if Holds(e.Value, true, path[1:], c) {
					return true
				}
			}
		case bson.A:
			for _, item := range v {
				if Holds(item, true, path[1:], c) {
					return true
				}
			}
		}
		return false
	}
	if d, ok := v.(bson.D); ok {
		for _, e := range d {
			if e.Key == path[0] {
				return Holds(e.Value, true, path[1:], c)
			}
		}
	}
	return compares(nil, false, c)
}

func compares(v any, there bool, c transform.Condition) bool {
	switch c.Op {
	case transform.OpHas:
		return there
	case transform.OpEqual, transform.OpIn:
		for _, w := range c.Values {
			if equals(v, w) {
				return true
			}
		}
		return false
	case transform.OpContains:
		switch v := v.(type) {
		case string:
			s, ok := c.Values[0].(string)
			return ok && strings.Contains(v, s)
		case bson.A:
			for _, item := range v {
				if equals(item, c.Values[0]) {
					return true
				}
			}
		}
		return false
	case transform.OpPrefix:
		s, ok := v.(string)
		prefix, isString := c.Values[0].(string)
		return ok && isString && strings.HasPrefix(s, prefix)
	}
	n, ok := order(v, c.Values[0])
	switch c.Op {
	case transform.OpLess:
		return ok && n < 0
	case transform.OpLessEqual:
		return ok && n <= 0
	case transform.OpGreater:
		return ok && n > 0
	default:
		return ok && n >= 0
	}
}

func equals(v, literal any) bool {
	if literal == nil {
		return v == nil
	}
	if id, ok := v.(bson.ObjectID); ok {
		return id.Hex() == literal
	}
	if b, ok := v.(bool); ok {
		return b == literal
	}
	n, ok := order(v, literal)
	return ok && n == 0
}

func order(v, literal any) (int, bool) {
	switch v := v.(type) {
	case string:
		s, ok := literal.(string)
		return strings.Compare(v, s), ok
	case bson.DateTime:
		t, ok := literal.(time.Time)
		return v.Time().Compare(t), ok
	}
	a, ok := number(v)
	b, okB := number(literal)
	if !ok || !okB {
		return 0, false
	}
	return a.Cmp(b), true
}

func number(v any) (*big.Float, bool) {
	exact := func() *big.Float { return new(big.Float).SetPrec(4000) }
	switch v := v.(type) {
	case int32:
		return exact().SetInt64(int64(v)), true
	case int64:
		return exact().SetInt64(v), true
	case uint64:
		return exact().SetUint64(v), true
	case float64:
		if math.IsNaN(v) {
			return nil, false
		}
		return exact().SetFloat64(v), true
	case bson.Decimal128:
		f, ok := exact().SetString(strings.TrimSuffix(v.String(), "inity"))
		return f, ok
	default:
		return nil, false
	}
}

// HoldsAll reports whether a document satisfies all conditions.
func HoldsAll(t *rapid.T, doc bson.Raw, cs []transform.Condition) bool {
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if !Holds(d, true, strings.Split(c.Path, "."), c) {
			return false
		}
	}
	return true
}
