package lens

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Hook is a pair of functions for what no operation can do. Both get one value for each
// path of from (Down: of to), with the zero RawValue for an absent field, and return one
// for each of the other's. They are not called where all fields are absent, or null:
// then those of the other side are.
//
// Both are pure, and neither keep nor change the bytes that they are given. A result
// that does not come back the same, to the bit, is an error of the record.
type Hook struct {
	Up, Down func(values []bson.RawValue) ([]bson.RawValue, error)
	// Revision is changed whenever the result of Up or Down changes: controllers whose
	// lenses differ do not work together.
	Revision string
}

// Hooks are the hooks of a program, by the names under which lenses call them.
type Hooks map[string]Hook

// WithHooks makes hooks known to a lens.
func WithHooks(h Hooks) Option { return func(p *lensParser) { p.hooks = h } }

func (p *lensParser) hook(n ast.Node) (op, error) {
	f, err := p.fields(n, "hook", []string{"name", "from", "to"}, []string{"fieldOrder"})
	if err != nil {
		return nil, err
	}
	from, to, err := p.calcPaths(f)
	if err != nil {
		return nil, err
	}
	name, err := scalarText(f["name"])
	if err != nil {
		return nil, p.errorAt(f["name"], "name must be the name of a hook")
	}
	h, ok := p.hooks[name]
	if !ok {
		known := "this program has none"
		if len(p.hooks) > 0 {
			var names []string
			for k := range p.hooks {
				names = append(names, k)
			}
			slices.Sort(names)
			known = "this program has: " + joinNames(names)
		}
		return nil, p.errorAt(f["name"], "unknown hook %q; %s (hooks are Go code that is given to lens.Parse)", strings.TrimSpace(name), known)
	}
	if h.Up == nil || h.Down == nil {
		return nil, p.errorAt(f["name"], "hook %q has not both Up and Down", name)
	}
	p.revisions = append(p.revisions, name, h.Revision)
	exact, err := p.exactOrder(f["fieldOrder"], true)
	if err != nil {
		return nil, err
	}
	o := &calc{name: "hook " + name, from: from, to: to, up: checked(h.Up), down: checked(h.Down)}
	if !exact {
		o.anyFrom, o.anyTo = slices.Repeat([]bool{true}, len(from)), slices.Repeat([]bool{true}, len(to))
	}
	return o, nil
}

// exactOrder reads fieldOrder: whether two objects that differ in the order of their fields
// only are two values, as they are to the database, or one.
func (p *lensParser) exactOrder(n ast.Node, otherwise bool) (bool, error) {
	if n == nil {
		return otherwise, nil
	}
	text, err := scalarText(n)
	if err != nil || text != string(orderAny) && text != string(orderExact) {
		return false, p.errorAt(n, "fieldOrder: unknown order %q; allowed: %s", strings.TrimSpace(n.String()), joinText(fieldOrders))
	}
	return text == string(orderExact), nil
}

// fieldOrder is what the order of fields in objects is to an operation.
type fieldOrder string

const (
	orderAny   fieldOrder = "any"
	orderExact fieldOrder = "exact"
)

var fieldOrders = []fieldOrder{orderAny, orderExact}

// checked refuses results that would make a document malformed.
func checked(f calculation) calculation {
	return func(in []bson.RawValue) ([]bson.RawValue, error) {
		out, err := f(in)
		if err != nil {
			return nil, err
		}
		for i, v := range out {
			if v.Type == 0 {
				continue
			}
			if err := v.Validate(); err != nil {
				return nil, fmt.Errorf("its value %d is not well-formed: %w", i, err)
			}
		}
		return out, nil
	}
}

// calcPaths reads the from and to of compute and hook.
func (p *lensParser) calcPaths(f map[string]ast.Node) (from, to []path, err error) {
	if from, err = p.paths(f["from"], "from", 1); err != nil {
		return nil, nil, err
	}
	if to, err = p.paths(f["to"], "to", 1); err != nil {
		return nil, nil, err
	}
	for _, a := range from {
		for _, b := range to {
			if a.overlaps(b) && !a.equal(b) {
				return nil, nil, p.errorAt(f["to"], "to: %s and %s lie within each other", a, b)
			}
			if a.equal(b) {
				continue
			}
			for _, item := range []path{a, b} {
				if item.isItem() {
					return nil, nil, p.errorAt(f["to"], `to: "." is the item itself, and stays it: it must be in from and in to`)
				}
			}
		}
	}
	return from, to, nil
}
