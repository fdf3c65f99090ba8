package lenstest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Names are the names of fields in drawn operations and documents. There are few, so that
// operations often find their fields.
var Names = []string{"a", "b", "o", "p", "l"}

// Untouched are the names of fields that no drawn operation has.
var Untouched = []string{"u", "v"}

// drawPath draws a path; in an item it may be the item itself.
func drawPath(t *rapid.T, label string, item bool) string {
	if item && rapid.IntRange(0, 5).Draw(t, label+" is the item") == 0 {
		return "."
	}
	parts := rapid.SliceOfN(rapid.SampledFrom(Names), 1, 3).Draw(t, label)
	return strings.Join(parts, ".")
}

// DrawnHooks are the hooks that drawn lenses use.
var DrawnHooks = lens.Hooks{"swap": {Up: Swapped, Down: Swapped}}

// Swapped is the function of a hook that exchanges two values.
func Swapped(in []bson.RawValue) ([]bson.RawValue, error) {
	if len(in) != 2 {
		return nil, errors.New("it swaps two values")
	}
	return []bson.RawValue{in[1], in[0]}, nil
}

func drawOperation(t *rapid.T, depth int, item bool) string {
	path := func(label string) string { return drawPath(t, label, item) }
	a, b := path("path"), path("other path")
	items := a
	if rapid.Bool().Draw(t, "of the list") {
		items = "l"
	}
	switch rapid.IntRange(0, 20).Draw(t, "operation") {
	case 0:
		at := strings.LastIndexByte(a, '.')
		return fmt.Sprintf("rename: {from: %s, to: %s}", a, a[:at+1]+rapid.SampledFrom(Names).Draw(t, "new name"))
	case 1, 2:
		return fmt.Sprintf("move: {from: %s, to: %s}", a, b)
	case 3:
		from := rapid.SampledFrom([]scalar.Type{scalar.Int, scalar.Long, scalar.Double, scalar.String}).Draw(t, "from")
		return fmt.Sprintf("convert: {field: %s, from: %s, to: %s}", a, from, rapid.SampledFrom(from.Targets()).Draw(t, "to"))
	case 4:
		return fmt.Sprintf("add: {field: %s, value: 2}", a)
	case 5:
		return fmt.Sprintf("add: {field: %s, default: 3}", a)
	case 6:
		return fmt.Sprintf("remove: {field: %s}", a)
	case 7:
		return fmt.Sprintf("remove: {field: %s, default: [x]}", a)
	case 8:
		return fmt.Sprintf("%s: {field: %s}", rapid.SampledFrom([]string{"wrap", "unwrap"}).Draw(t, "list"), items)
	case 9:
		return fmt.Sprintf("copy: {from: %s, to: %s}", a, b)
	case 10:
		return fmt.Sprintf("split: {field: %s, to: [%s, %s], separator: ':', rest: %t}", a, b, path("third path"), rapid.Bool().Draw(t, "rest"))
	case 11:
		return fmt.Sprintf("join: {fields: [%s, %s], to: %s, separator: ':'}", a, b, path("third path"))
	case 12:
		return fmt.Sprintf("hook: {name: swap, from: [%s, %s], to: [%s, %s]}", a, b, path("third path"), path("fourth path"))
	case 13:
		v, w := celName(a), celName(b)
		return fmt.Sprintf(`compute: {from: [%s], to: [%s], up: {%s: "[%s, 1]"}, down: {%s: "size(%s) == 2 ? %s[0] : absent"}}`, a, b, b, v, a, w, w)
	case 19:
		v, w := celName(a), celName(b)
		return fmt.Sprintf(`compute: {from: [%s], to: [%s], up: {%s: "{'x': %s, 'y': 1}"}, down: {%s: "%s.x"}}`, a, b, b, v, a, w)
	case 15:
		return fmt.Sprintf("%s: {field: %s, separator: ':', tidy: %t}", rapid.SampledFrom([]string{"splitList", "joinList"}).Draw(t, "listing"), a, rapid.Bool().Draw(t, "tidy"))
	case 16, 17:
		steps := rapid.SliceOfNDistinct(rapid.SampledFrom(operation.NormalSteps), 1, 4, rapid.ID).Draw(t, "steps")
		return fmt.Sprintf("normalize: {field: %s, steps: [%s]}", a, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(steps)), ", "), "[]"))
	case 18:
		from := rapid.SampledFrom(scalar.Number.Targets()).Draw(t, "number")
		if rapid.Bool().Draw(t, "to a number") {
			return fmt.Sprintf("convert: {field: %s, from: %s, to: number}", a, from)
		}
		return fmt.Sprintf("convert: {field: %s, from: number, to: %s}", a, from)
	case 14:
		return fmt.Sprintf("convert: {field: %s, table: {x: y, 1: x, z: 2}}", a)
	default:
		if depth > 1 {
			return fmt.Sprintf("wrap: {field: %s}", a)
		}
		how := rapid.SampledFrom([]string{"", "in: list, ", "in: map, ", "match: b, ", "match: o.a, ", "in: list, match: b, "}).Draw(t, "how")
		var inner []string
		for range rapid.IntRange(1, 3).Draw(t, "inner operations") {
			inner = append(inner, drawOperation(t, depth+1, true))
		}
		return fmt.Sprintf("each: {field: %s, %soperations: [%s]}", items, how, strings.Join(inner, ", "))
	}
}

func celName(path string) string {
	if path == "." {
		return "item"
	}
	return path
}

// DrawLens draws a lens and returns it with its text. It draws one operation at a time, and omits
// each that cannot follow the earlier ones.
func DrawLens(t *rapid.T) (*lens.Lens, string) {
	l, kept := &lens.Lens{}, "operations:"
	for range rapid.IntRange(1, 7).Draw(t, "operations") {
		longer := kept + "\n  - " + drawOperation(t, 0, false)
		if next, err := lens.Parse("drawn.yaml", []byte(longer), lens.WithHooks(DrawnHooks)); err == nil {
			l, kept = next, longer
		}
	}
	return l, kept
}

// everyType has values of all types, among them some that a decoder would change.
var everyType = []any{
	int32(1), int64(1), 1.5, "1", "x", "x:y", "", nil, true, false, bson.ObjectID{1}, bson.DateTime(5), bson.Timestamp{T: 1, I: 2},
	bson.Binary{Subtype: 4, Data: []byte{1}}, bson.Binary{Subtype: 2, Data: []byte{1}}, bson.Regex{Pattern: "a", Options: "im"}, bson.JavaScript("x"),
	bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "a", Value: 1}}}, bson.Symbol("s"), bson.DBPointer{DB: "d"}, bson.Undefined{}, bson.MinKey{}, bson.MaxKey{},
	math.Float64frombits(0x7ff8000000000123), math.Copysign(0, -1), bson.NewDecimal128(0x3040000000000000, 100), bson.A{}, bson.D{},
	bson.D{{Key: "z", Value: 1}, {Key: "a", Value: bson.A{1, "x"}}},
}

// drawnDecimals are 1.0 and 1.50.
var drawnDecimals = []bson.Decimal128{bson.NewDecimal128(0x303e000000000000, 10), bson.NewDecimal128(0x303c000000000000, 150)}

func drawDoc(t *rapid.T, depth int) bson.D {
	d := bson.D{}
	for _, name := range rapid.Permutation(Names).Draw(t, "order") {
		k := rapid.IntRange(0, 9).Draw(t, name)
		if name == "l" && k > 3 {
			k = 8
		}
		switch {
		case k == 0:
			d = append(d, bson.E{Key: name, Value: int32(rapid.IntRange(1, 3).Draw(t, "int"))})
		case k == 1:
			d = append(d, bson.E{Key: name, Value: rapid.SampledFrom([]any{int64(1), 1.0, 1.5, "1", "x", " X", "x:y", "x: y:z", "", nil, drawnDecimals[0], drawnDecimals[1]}).Draw(t, "other")})
		case k == 2:
			d = append(d, bson.E{Key: name, Value: rapid.SampledFrom(everyType).Draw(t, "any")})
		case k < 5 && depth < 2:
			d = append(d, bson.E{Key: name, Value: drawDoc(t, depth+1)})
		case k == 8 && depth < 2:
			d = append(d, bson.E{Key: name, Value: drawItems(t, depth)})
		}
	}
	return d
}

// drawItems draws a list or a map, of objects mostly.
func drawItems(t *rapid.T, depth int) any {
	list := rapid.Bool().Draw(t, "list")
	a, m := bson.A{}, bson.D{}
	for i := range rapid.IntRange(0, 3).Draw(t, "items") {
		var item any
		if rapid.IntRange(0, 3).Draw(t, "item is a value") == 0 {
			item = rapid.SampledFrom(everyType).Draw(t, "value")
		} else {
			doc := drawDoc(t, depth+1)
			if rapid.Bool().Draw(t, "with an id") {
				doc = append(bson.D{{Key: "b", Value: int32(i)}}, Omit(doc, "b")...)
			}
			item = doc
		}
		a, m = append(a, item), append(m, bson.E{Key: fmt.Sprintf("k%d", i), Value: item})
	}
	if list {
		return a
	}
	return m
}

// Omit returns the document without the field of a name.
func Omit(d bson.D, name string) bson.D {
	out := bson.D{}
	for _, e := range d {
		if e.Key != name {
			out = append(out, e)
		}
	}
	return out
}

// DrawRecord draws a document with an _id and other fields. Some of them are Untouched.
func DrawRecord(t *rapid.T) bson.Raw {
	d := bson.D{{Key: "_id", Value: 1}}
	for i, e := range drawDoc(t, 0) {
		if i < len(Untouched) {
			d = append(d, bson.E{Key: Untouched[i], Value: rapid.SampledFrom(everyType).Draw(t, Untouched[i])})
		}
		d = append(d, e)
	}
	return Marshal(t, d)
}
