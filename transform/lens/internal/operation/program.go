package operation

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Program is a compiled list of operations in one direction. Concurrent runs are safe. The zero
// Program changes nothing.
type Program struct {
	Ops []Op
	// Held lists the fields that only the far side has, by their paths there.
	Held []Holding
	// Forms lists the values that the far side may keep in a form of its own. there and back hold
	// the operations and their reverse. A Program runs both to decide whether two forms have the
	// same meaning.
	Forms       []form
	there, back []Op
	Grow        int // estimate of a document's growth in bytes, for one allocation
}

// Holding is a field that only the far side has. The program keeps its value in the target's
// record.
type Holding struct {
	Path edit.Path
	// matches has one path for each edit.ItemPart of Path: the field, from the list on, that
	// distinguishes the items, by its far name. It is nil for the entries of a map, whose names
	// distinguish them.
	matches []edit.Path
	By      fmt.Stringer // the operation that loses the field in the reverse
}

// rewrapper is an op that changes the number of lists on the path of a holding.
type rewrapper interface{ rewrap(h Holding) Holding }

// holder is an op that keeps fields which only the far side has.
type holder interface{ holds() []Holding }

// Grouped is an Op that needs more than its record: the record's group, or the record's name on the
// other side. The method only marks such an Op.
type Grouped interface{ Grouped() }

// Compile makes a Program of operations. It finds the parts of the target's record that the Program
// must keep (Held and Forms). It returns an error if a later operation takes such a part apart.
func Compile(ops []Op) (Program, error) {
	p := Program{Ops: ops}
	for i, o := range ops {
		for _, made := range o.Makes() {
			for _, part := range made {
				// An estimate for one allocation. A wrong one costs only time.
				p.Grow += len(part) + 8
			}
		}
		p.Grow += 32 * len(o.Changes())
		if err := p.addForms(o, ops[i+1:]); err != nil {
			return Program{}, err
		}
		h, ok := o.(holder)
		if !ok {
			continue
		}
		for _, held := range h.holds() {
			// Later operations may rename or move the field.
			held, f, err := held.Trace(ops[i+1:])
			if err != nil {
				return Program{}, err
			}
			if f != Gone {
				p.Held = append(p.Held, held)
			}
		}
	}
	// Only comparisons of forms need to run the operations in both directions.
	if len(p.Forms) > 0 {
		p.there, p.back = withinRecord(ops), withinRecord(Inverses(ops))
	}
	return p, nil
}

// Trace follows a holding through ops to the far side. The Fate is Gone if an operation removes the
// field. An operation that takes the field apart is an error.
func (h Holding) Trace(ops []Op) (Holding, Fate, error) {
	h.matches = slices.Clone(h.matches)
	for _, o := range ops {
		if w, ok := o.(rewrapper); ok {
			// wrap and unwrap change the number of lists on the path, which Trace does not express.
			h = w.rewrap(h)
			continue
		}
		for i, m := range h.matches {
			if m == nil {
				continue
			}
			far, err := TraceKept(m, []Op{o})
			if err != nil {
				return h, kept, fmt.Errorf("match: %w", err)
			}
			h.matches[i] = far
		}
		p, f := o.Trace(h.Path)
		switch f {
		case Gone:
			return h, Gone, nil
		case Spread, Clashes:
			return h, kept, fmt.Errorf("it splits the value that contains %s (%s)", h.Path, o)
		}
		h.Path = p
	}
	return h, kept, nil
}

// TraceKept follows a path through ops. It returns an error unless the path stays the path of one
// field.
func TraceKept(p edit.Path, ops []Op) (edit.Path, error) {
	for _, o := range ops {
		next, f := o.Trace(p)
		if f != kept && f != Converted {
			return nil, fmt.Errorf("the value of %s changes (%s)", p, o)
		}
		p = next
	}
	return p, nil
}

// Run transforms one record without the other records of its group. have is the target's version of
// the record, or nil. The result may be doc itself. Run changes neither argument.
func (p *Program) Run(doc, have bson.Raw) (bson.Raw, error) { return p.RunGroup(doc, have, nil) }

// RunGroup is Run for a record with the other records of its group. Operations on several records
// append their results to g.Out. g may be nil.
func (p *Program) RunGroup(doc, have bson.Raw, g *edit.Group) (bson.Raw, error) {
	if len(p.Ops) == 0 {
		return doc, nil
	}
	e := edit.New()
	defer e.Release()
	// Release clears them again.
	e.Group, e.Have = g, have
	root, err := e.Open(doc)
	if err != nil {
		return nil, err
	}
	for _, o := range p.Ops {
		if err := o.Apply(e, root); err != nil {
			return nil, RecordError(o, err)
		}
	}
	// Return the source's bytes: re-encoding an unchanged record would only cost time.
	if !root.Dirty() && (have == nil || !p.Keeps()) {
		return doc, nil
	}
	// A new record has no complement: defaults apply.
	if have != nil {
		if err := p.Over(e, root, have); err != nil {
			return nil, complementError(err)
		}
	}
	return root.Encode(make([]byte, 0, len(doc)+p.Grow)), nil
}

// Keeps reports whether the result takes anything from the target's record.
func (p *Program) Keeps() bool { return len(p.Held)+len(p.Forms) > 0 }

// Over restores three things in n from have, the target's record: the fields that only the far side
// has, the forms of values, and the order of fields.
func (p *Program) Over(e *edit.Editor, n *edit.Node, have bson.Raw) error {
	h, err := e.Open(have)
	if err != nil {
		return err
	}
	for _, f := range p.Held {
		if err := e.Complement(n, h, f.Path, f.matches); err != nil {
			return err
		}
	}
	// Forms come after the held fields and before the order: they compare complete records, and add
	// fields whose place is restored last.
	if err := p.keepForms(e, n, h, have); err != nil {
		return err
	}
	for _, f := range p.Held {
		if err := e.RestoreItems(n, h, f.Path, f.matches); err != nil {
			return err
		}
	}
	for _, f := range p.Forms {
		if err := e.RestoreItems(n, h, f.Fields[0].Path, f.Fields[0].matches); err != nil {
			return err
		}
	}
	return e.RestoreOrder(n, h)
}
