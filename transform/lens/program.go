package lens

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// program is a list of operations in one direction.
type program struct {
	ops []op
	// held lists the fields that only the far side has, by their far names.
	held []holding
	// forms lists the values that the far side may keep in a form of its own. there and back are
	// the operations and their reverse; they decide whether two forms have the same meaning.
	forms       []form
	there, back []op
	grow        int // approximate limit of a document's growth in bytes
}

// holding is a field that only the far side has. The program keeps its value there.
type holding struct {
	path edit.Path
	// matches has one path for each itemPart of path: the field, from the list on, that
	// distinguishes the items, by its far name. It is nil for the entries of a map, whose names
	// distinguish them.
	matches []edit.Path
	by      fmt.Stringer // the operation that loses the field in the reverse
}

// rewrapper is an op that changes the number of lists on the path of a holding.
type rewrapper interface{ rewrap(h holding) holding }

// holder is an op that keeps fields which only the far side has.
type holder interface{ holds() []holding }

// grouped is an op that needs more than its record: the record's group, or the name on the other
// side.
type grouped interface{ grouped() }

// compileProgram finds the parts of the complement that a list of operations needs.
func compileProgram(ops []op) (program, error) {
	p := program{ops: ops}
	for i, o := range ops {
		for _, made := range o.makes() {
			for _, part := range made {
				// An estimate for one allocation. A wrong one costs only time.
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
			// Later operations may rename or move the field.
			held, f, err := held.trace(ops[i+1:])
			if err != nil {
				return program{}, err
			}
			if f != gone {
				p.held = append(p.held, held)
			}
		}
	}
	// Only comparisons of forms need to run the operations in both directions.
	if len(p.forms) > 0 {
		p.there, p.back = withinRecord(ops), withinRecord(inverses(ops))
	}
	return p, nil
}

// trace follows a holding through ops to the far side.
func (h holding) trace(ops []op) (holding, fate, error) {
	h.matches = slices.Clone(h.matches)
	for _, o := range ops {
		if w, ok := o.(rewrapper); ok {
			// wrap and unwrap change the number of lists on the path, which trace does not express.
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

// traceKept follows a path that must stay the path of one value.
func traceKept(p edit.Path, ops []op) (edit.Path, error) {
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

// runGroup is run for a record with other records around it.
func (p *program) runGroup(doc, have bson.Raw, g *edit.Group) (bson.Raw, error) {
	if len(p.ops) == 0 {
		return doc, nil
	}
	e := edit.New()
	defer e.Release()
	// release clears them again.
	e.Group, e.Have = g, have
	root, err := e.Open(doc)
	if err != nil {
		return nil, err
	}
	for _, o := range p.ops {
		if err := o.apply(e, root); err != nil {
			return nil, recordError(o, err)
		}
	}
	// Return the source's bytes: re-encoding an unchanged record would only cost time.
	if !root.Dirty() && (have == nil || !p.keeps()) {
		return doc, nil
	}
	// A new record has no complement: defaults apply.
	if have != nil {
		if err := p.over(e, root, have); err != nil {
			return nil, complementError(err)
		}
	}
	return root.Encode(make([]byte, 0, len(doc)+p.grow)), nil
}

// keeps reports whether the result keeps anything of the target's record.
func (p *program) keeps() bool { return len(p.held)+len(p.forms) > 0 }

// over restores three things of the target's record: fields that only it has, the forms of values,
// and the order of fields.
func (p *program) over(e *edit.Editor, n *edit.Node, have bson.Raw) error {
	h, err := e.Open(have)
	if err != nil {
		return err
	}
	for _, f := range p.held {
		if err := e.Complement(n, h, f.path, f.matches); err != nil {
			return err
		}
	}
	// Forms come after the held fields and before the order: they compare complete records, and add
	// fields whose place is restored last.
	if err := p.keepForms(e, n, h, have); err != nil {
		return err
	}
	for _, f := range p.held {
		if err := e.RestoreItems(n, h, f.path, f.matches); err != nil {
			return err
		}
	}
	for _, f := range p.forms {
		if err := e.RestoreItems(n, h, f.fields[0].path, f.fields[0].matches); err != nil {
			return err
		}
	}
	return e.RestoreOrder(n, h)
}
