package lens

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// Hook is a pair of functions for changes that no operation can express. Up gets one value for each
// path of from and returns one for each path of to; Down does the opposite. The zero RawValue
// stands for an absent field. If all fields are absent, or all are null, the lens does not call the
// hook and makes all results absent or null.
//
// Both functions must be pure. They must not keep or modify the bytes that they get. A result that
// does not come back bit for bit is an error of the record.
type Hook struct {
	Up, Down func(values []bson.RawValue) ([]bson.RawValue, error)
	// Revision must change whenever the result of Up or Down changes. Controllers with different
	// lenses do not work together.
	Revision string
}

// Hooks maps the names that lenses use to a program's hooks.
type Hooks map[string]Hook

// WithHooks makes hooks available to a lens.
func WithHooks(h Hooks) Option { return func(p *lensParser) { p.hooks = h } }

func (p *lensParser) hook(n ast.Node) (operation.Op, error) {
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
		// List the known names, so that a spelling mistake is obvious.
		known := "this program has none"
		if len(p.hooks) > 0 {
			var names []string
			for k := range p.hooks {
				names = append(names, k)
			}
			slices.Sort(names)
			known = "this program has: " + joinNames(names)
		}
		return nil, p.errorAt(f["name"], "unknown hook %q; %s (hooks are Go code that the program passes to lens.Parse)", strings.TrimSpace(name), known)
	}
	if h.Up == nil || h.Down == nil {
		return nil, p.errorAt(f["name"], "hook %q has not both Up and Down", name)
	}
	// The digest of the lens covers the hooks in use, so that controllers with other hooks do not
	// take part.
	p.revisions = append(p.revisions, name, h.Revision)
	exact, err := p.exactOrder(f["fieldOrder"], true)
	if err != nil {
		return nil, err
	}
	o := &operation.Calc{Name: "hook " + name, From: from, To: to, Up: checked(h.Up), Down: checked(h.Down)}
	if !exact {
		// A hook declares nothing about single fields, so all of them may differ in order.
		o.AnyFrom, o.AnyTo = slices.Repeat([]bool{true}, len(from)), slices.Repeat([]bool{true}, len(to))
	}
	return o, nil
}

// exactOrder reads fieldOrder. It reports whether objects that differ only in the order of fields
// are different values, as they are to the database.
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

// fieldOrder is the meaning of the order of fields in objects.
type fieldOrder string

const (
	orderAny   fieldOrder = "any"
	orderExact fieldOrder = "exact"
)

var fieldOrders = []fieldOrder{orderAny, orderExact}

// checked refuses malformed results, which would make the whole document malformed.
func checked(f operation.Calculation) operation.Calculation {
	return func(in []bson.RawValue) ([]bson.RawValue, error) {
		out, err := f(in)
		if err != nil {
			return nil, err
		}
		for i, v := range out {
			// The zero value is an absent field.
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

// calcPaths reads from and to of compute and hook.
func (p *lensParser) calcPaths(f map[string]ast.Node) (from, to []edit.Path, err error) {
	if from, err = p.paths(f["from"], "from", 1); err != nil {
		return nil, nil, err
	}
	if to, err = p.paths(f["to"], "to", 1); err != nil {
		return nil, nil, err
	}
	for _, a := range from {
		for _, b := range to {
			// A field within another one would be written twice, in an undefined order.
			if a.Overlaps(b) && !a.Equal(b) {
				return nil, nil, p.errorAt(f["to"], "to: %s and %s lie within each other", a, b)
			}
			if a.Equal(b) {
				continue
			}
			for _, item := range []edit.Path{a, b} {
				if item.IsItem() {
					return nil, nil, p.errorAt(f["to"], `to: "." is the item itself and stays the item: name it in from and in to`)
				}
			}
		}
	}
	return from, to, nil
}
