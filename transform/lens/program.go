package lens

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// program is operations in one direction.
type program struct {
	ops []op
	// held are the fields, as the far side names them, that only the far side holds.
	held []holding
	// forms are the values that the far side may keep in a form of its own. there and back
	// are the operations, and their reverse, that find out whether two forms mean the same.
	forms       []form
	there, back []op
	grow        int // bytes by which a document grows at most, about
}

// holding is a field that only the far side holds: what it has of it is kept.
type holding struct {
	path path
	// matches has one path for each itemPart of path: the field, from the list on, that
	// tells its items apart, as the far side names it. It is nil for the entries of a
	// map, which their names tell apart.
	matches []path
	by      fmt.Stringer // what loses the field in the reverse direction
}

// rewrapper is an op that changes how many lists lead to a holding.
type rewrapper interface{ rewrap(h holding) holding }

// holder is an op that keeps fields which only the far side has.
type holder interface{ holds() []holding }

// compileProgram finds what a list of operations needs of the complement.
func compileProgram(ops []op) (program, error) {
	p := program{ops: ops}
	for i, o := range ops {
		for _, made := range o.makes() {
			for _, part := range made {
				p.grow += len(part) + 8
			}
		}
		p.grow += 32 * len(o.changes())
		if err := p.addForms(o, ops[i+1:]); err != nil {
			return program{}, err
		}
		h, ok := o.(holder)
		if !ok {
			continue
		}
		for _, held := range h.holds() {
			held, f, err := held.trace(ops[i+1:])
			if err != nil {
				return program{}, err
			}
			if f != gone {
				p.held = append(p.held, held)
			}
		}
	}
	if len(p.forms) > 0 {
		p.there, p.back = withinRecord(ops), withinRecord(inverses(ops))
	}
	return p, nil
}

// trace follows a holding to the side after ops.
func (h holding) trace(ops []op) (holding, fate, error) {
	h.matches = slices.Clone(h.matches)
	for _, o := range ops {
		if w, ok := o.(rewrapper); ok {
			h = w.rewrap(h)
			continue
		}
		for i, m := range h.matches {
			if m == nil {
				continue
			}
			far, err := traceKept(m, []op{o})
			if err != nil {
				return h, kept, fmt.Errorf("match: %w", err)
			}
			h.matches[i] = far
		}
		p, f := o.trace(h.path)
		switch f {
		case gone:
			return h, gone, nil
		case spread, clashes:
			return h, kept, fmt.Errorf("it takes apart what holds %s (%s)", h.path, o)
		}
		h.path = p
	}
	return h, kept, nil
}

// traceKept follows a path that must stay a path of one value.
func traceKept(p path, ops []op) (path, error) {
	for _, o := range ops {
		next, f := o.trace(p)
		if f != kept && f != converted {
			return nil, fmt.Errorf("%s does not stay what it is (%s)", p, o)
		}
		p = next
	}
	return p, nil
}

func (p *program) run(doc, have bson.Raw) (bson.Raw, error) { return p.runGroup(doc, have, nil) }

// runGroup is run for a record that has others around it.
func (p *program) runGroup(doc, have bson.Raw, g *group) (bson.Raw, error) {
	if len(p.ops) == 0 {
		return doc, nil
	}
	e := editors.Get().(*editor)
	defer e.release()
	e.group, e.have = g, have
	root, err := e.open(doc)
	if err != nil {
		return nil, err
	}
	for _, o := range p.ops {
		if err := o.apply(e, root); err != nil {
			return nil, recordError(o, err)
		}
	}
	if !root.dirty() && (have == nil || !p.keeps()) {
		return doc, nil
	}
	if have != nil {
		if err := e.over(root, have, p); err != nil {
			return nil, complementError(err)
		}
	}
	return root.encode(make([]byte, 0, len(doc)+p.grow)), nil
}

// keeps reports whether anything of what the target has is kept.
func (p *program) keeps() bool { return len(p.held)+len(p.forms) > 0 }

// over gives a record what only the target has of it, the forms of values that it has there,
// and their order.
func (e *editor) over(n *node, have bson.Raw, p *program) error {
	h, err := e.open(have)
	if err != nil {
		return err
	}
	for _, f := range p.held {
		if err := e.complement(n, h, f.path, f.matches); err != nil {
			return err
		}
	}
	if err := e.keepForms(n, h, have, p); err != nil {
		return err
	}
	for _, f := range p.held {
		if err := e.restoreItems(n, h, f.path, f.matches); err != nil {
			return err
		}
	}
	for _, f := range p.forms {
		if err := e.restoreItems(n, h, f.fields[0].path, f.fields[0].matches); err != nil {
			return err
		}
	}
	return e.restoreOrder(n, h)
}
