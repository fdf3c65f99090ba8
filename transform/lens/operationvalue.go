package lens

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

func (p *lensParser) convert(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "convert", []string{"field"}, []string{"from", "to", "table", "rounding"})
	if err != nil {
		return nil, err
	}
	field, err := p.path(f["field"], "field")
	if err != nil {
		return nil, err
	}
	if t, ok := f["table"]; ok {
		for _, other := range []string{"from", "to", "rounding"} {
			if o, ok := f[other]; ok {
				return nil, p.errorAt(o, "convert has table or from and to, not %s together with table", other)
			}
		}
		return p.table(field, t)
	}
	var types [2]scalar.Type
	for i, key := range []string{"from", "to"} {
		v, ok := f[key]
		if !ok {
			return nil, p.errorAt(n, "convert needs the key %q (or table)", key)
		}
		name, err := scalarText(v)
		if err != nil || !slices.Contains(scalar.Types, scalar.Type(name)) {
			return nil, p.errorAt(v, "%s: unknown type %q; allowed: %s", key, strings.TrimSpace(v.String()), scalar.JoinTypes(scalar.Types))
		}
		types[i] = scalar.Type(name)
	}
	// Refuse conversions that could never be undone before the first record fails.
	if !types[0].Convertible(types[1]) {
		return nil, p.errorAt(f["to"], "%s cannot be converted to %s and back; allowed: %s", types[0], types[1], scalar.JoinTypes(types[0].Targets()))
	}
	o := &operation.Convert{Field: field, From: types[0], To: types[1]}
	if n, ok := f["rounding"]; ok {
		text, err := scalarText(n)
		dates := o.From == scalar.Epoch && o.To == scalar.Date || o.From == scalar.Date && o.To == scalar.Epoch
		if err != nil || text != roundingSeconds || !dates {
			return nil, p.errorAt(n, "rounding is %s, and for %s and %s: a date then keeps its milliseconds if the other side has the same second", roundingSeconds, scalar.Epoch, scalar.Date)
		}
		o.Rounding = true
	}
	return o, nil
}

// roundingSeconds is the only value of rounding.
const roundingSeconds = "seconds"

func (p *lensParser) table(field edit.Path, n ast.Node) (operation.Op, error) {
	entries, ok := mapping(n)
	if !ok || len(entries) == 0 {
		return nil, p.errorAt(n, "table must be a mapping from values to values")
	}
	// Both directions need a lookup, so build both maps and require them to be one to one.
	t := &operation.Table{Field: field, There: map[string]bson.RawValue{}, Back: map[string]bson.RawValue{}}
	var known, knownBack []string
	for _, e := range entries {
		a, err := p.value(e.Key, "a key of table")
		if err != nil {
			return nil, err
		}
		b, err := p.value(e.Value, "a value of table")
		if err != nil {
			return nil, err
		}
		for _, v := range []bson.RawValue{a, b} {
			// Null stays by itself. Objects and lists would have to match byte for byte.
			if v.Type == bson.TypeNull || v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray {
				return nil, p.errorAt(e.Value, "table holds single values; %s is of type %s", v, edit.TypeName(v.Type))
			}
		}
		ka, kb := edit.ValueKey(a), edit.ValueKey(b)
		if _, twice := t.There[ka]; twice {
			return nil, p.errorAt(e.Key, "table has %s twice", a)
		}
		if was, twice := t.Back[kb]; twice {
			return nil, p.errorAt(e.Value, "table maps both %[2]s and %[3]s to %[1]s, so that it cannot be reversed", b, was, a)
		}
		t.There[ka], t.Back[kb] = b, a
		known, knownBack = append(known, a.String()), append(knownBack, b.String())
	}
	t.Known, t.KnownBack = joinNames(known), joinNames(knownBack)
	return t, nil
}

func (p *lensParser) add(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "add", []string{"field"}, []string{"default", "value"})
	if err != nil {
		return nil, err
	}
	field, err := p.fieldPath(f["field"], "field")
	if err != nil {
		return nil, err
	}
	// The two differ in ownership: an application may change a default, and never a value.
	def, hasDefault := f["default"]
	constant, hasValue := f["value"]
	if hasDefault == hasValue {
		return nil, p.errorAt(n, "add needs either default (the new version's application may change it) or value (a constant)")
	}
	if hasValue {
		def = constant
	}
	v, err := p.value(def, "the value")
	if err != nil {
		return nil, err
	}
	return &operation.Add{Field: field, Type: v.Type, Val: v.Value, Constant: hasValue, Verb: "add"}, nil
}

func (p *lensParser) remove(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "remove", []string{"field"}, []string{"default"})
	if err != nil {
		return nil, err
	}
	field, err := p.fieldPath(f["field"], "field")
	if err != nil {
		return nil, err
	}
	// Type 0 means that Down writes nothing.
	o := &operation.Drop{Field: field, Verb: "remove"}
	if def, ok := f["default"]; ok {
		v, err := p.value(def, "default")
		if err != nil {
			return nil, err
		}
		o.Type, o.Val = v.Type, v.Value
	}
	return o, nil
}

// value reads a YAML value as BSON. An integer is an int if it fits, and else a long. Other types
// use extended JSON, such as {$numberLong: 5} or {$date: ...}.
func (p *lensParser) value(n ast.Node, what string) (bson.RawValue, error) {
	// Let the driver parse extended JSON, so that lenses accept exactly its forms.
	text, err := appendJSON(nil, n, 0)
	if err != nil {
		return bson.RawValue{}, p.errorAt(n, "%s: %v", what, err)
	}
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON(fmt.Appendf(nil, `{"v":%s}`, text), false, &doc); err != nil {
		return bson.RawValue{}, p.errorAt(n, "%s: %v", what, err)
	}
	return doc.Lookup("v"), nil
}
