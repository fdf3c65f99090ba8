package lens

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// form is a value that one side may write in several ways with the same meaning. Examples are
// numbers of any type and texts that are not normalised. The far side keeps its own form as long as
// its meaning equals the near side's present value. So a form survives a round trip, and neither
// side overwrites the other's form.
type form struct {
	// fields have their meaning together: either all keep their forms, or none does.
	fields   []holding
	anyOrder bool // values that differ only in the order of fields have the same meaning
}

// former is an op that makes values whose form the far side keeps.
type former interface{ forms() []form }

// addForms traces the forms of an operation to the far side.
func (p *program) addForms(o op, after []op) error {
	f, ok := o.(former)
	if !ok {
		return nil
	}
	for _, made := range f.forms() {
		// The far side keeps the form, under the name that the field has there.
		far, err := made.trace(after)
		if err != nil {
			return err
		}
		if len(far.fields) > 0 {
			p.forms = append(p.forms, far)
		}
	}
	return nil
}

// trace follows a form through ops to the far side.
func (f form) trace(ops []op) (form, error) {
	for _, o := range ops {
		out := form{anyOrder: f.anyOrder}
		for _, h := range f.fields {
			far, err := h.traceForm(o)
			if f.anyOrder && errors.Is(err, errFormGone) {
				continue // field order in a removed value needs no care: the child has its own
			}
			if err != nil {
				return f, err
			}
			for _, next := range far {
				// Two fields may have become one.
				if !slices.ContainsFunc(out.fields, func(have holding) bool { return have.path.Equal(next.path) }) {
					out.fields = append(out.fields, next)
				}
			}
		}
		f = out
	}
	return f, nil
}

// errFormGone means that an operation removes a value that has a form.
var errFormGone = errors.New("whose form is to be kept")

// traceForm follows a value with forms through one operation. Values calculated from it have forms
// too.
func (h holding) traceForm(o op) ([]holding, error) {
	if c, ok := o.(*calc); ok && slices.ContainsFunc(c.from, h.path.Under) {
		var out []holding
		for _, to := range c.to {
			out = append(out, holding{path: to, matches: h.matches[:to.Items()], by: h.by})
		}
		return out, nil
	}
	if list, ok := listed(o); ok && h.path.Under(list) {
		return []holding{{path: list, matches: h.matches[:list.Items()], by: h.by}}, nil
	}
	far, f, err := h.trace([]op{o})
	if err == nil && f == gone {
		err = fmt.Errorf("it takes away %s, %w (%s)", h.path, errFormGone, o)
	}
	return []holding{far}, err
}

// withinRecord returns the operations that need no other record.
func withinRecord(ops []op) []op {
	return slices.DeleteFunc(slices.Clone(ops), func(o op) bool {
		_, ok := o.(grouped)
		return ok
	})
}

// meaning holds the new record and the target's record, both in the lens's own form. It is computed
// only if the two differ.
type meaning struct {
	e    *edit.Editor
	p    *program
	root *edit.Node
	have bson.Raw

	tried      bool
	made, held *edit.Node // both nil if either has no such form
}

func (m *meaning) nodes() (made, held *edit.Node) {
	if !m.tried {
		// Compute it once for each record, and only if a value differs.
		m.tried = true
		made, held := m.canonical(m.root.Encode(nil)), m.canonical(m.have)
		// If one cannot be converted, their meanings cannot be compared.
		if made != nil && held != nil {
			m.made, m.held = made, held
		}
	}
	return m.made, m.held
}

// canonical converts a document to the near side and back.
func (m *meaning) canonical(doc bson.Raw) *edit.Node {
	n, err := m.e.Open(doc)
	if err != nil {
		return nil
	}
	for _, ops := range [][]op{m.p.back, m.p.there} {
		for _, o := range ops {
			if o.apply(m.e, n) != nil {
				return nil // a value that the lens refuses has no other form
			}
		}
	}
	return n
}

// forms compares one level of a record with the target's record.
type forms struct {
	e          *edit.Editor
	root, have *edit.Node
	meaning    func() (made, held *edit.Node)
}

// keepForms gives values the form that the target has.
func (p *program) keepForms(e *edit.Editor, root, have *edit.Node, doc bson.Raw) error {
	if len(p.forms) == 0 {
		return nil
	}
	m := &meaning{e: e, p: p, root: root, have: doc}
	c := forms{e: e, root: root, have: have, meaning: m.nodes}
	for _, f := range p.forms {
		if err := c.keep(f); err != nil {
			return err
		}
	}
	return nil
}

// keep finds the items that contain a form, like complement.
func (c forms) keep(f form) error {
	first := f.fields[0]
	at := first.path.ItemAt()
	if at < 0 {
		return c.keepValues(f)
	}
	// Continue with the paths relative to the item.
	inner := form{anyOrder: f.anyOrder}
	for _, h := range f.fields {
		m := edit.Within(h.matches, at)
		inner.fields = append(inner.fields, holding{path: h.path[at:], matches: m[1:], by: h.by})
	}
	list := first.path[:at]
	match := edit.Within(first.matches, at)[0]
	return c.e.PairItems(c.root, c.have, list, match, func(key string, item, haveItem *edit.Node) error {
		return forms{e: c.e, root: item, have: haveItem, meaning: func() (*edit.Node, *edit.Node) {
			// Lazily: most items are equal, and do not need the canonical records.
			made, held := c.meaning()
			return c.e.ItemOf(made, list, match, key), c.e.ItemOf(held, list, match, key)
		}}.keep(inner)
	})
}

func (c forms) keepValues(f form) error {
	// Equal already, so the form is the target's.
	if f.same(c.e, c.root, c.have, false) {
		return nil
	}
	if !f.anyOrder || !f.same(c.e, c.root, c.have, true) {
		made, held := c.meaning()
		// The meaning differs, or is unknown: the new value replaces the target's.
		if made == nil || held == nil || !f.same(c.e, made, held, f.anyOrder) {
			return nil
		}
	}
	for _, h := range f.fields {
		n, i, err := c.e.Lookup(c.root, h.path)
		if err != nil {
			return err
		}
		// The meanings are equal. Take the target's values for all fields of the form.
		v, ok := c.e.ValueAt(c.have, h.path)
		switch {
		case !ok || n == nil:
		case v.Type == 0 && i >= 0:
			n.Remove(i)
		case v.Type != 0 && i >= 0:
			n.Set(i, v.Type, v.Value)
		case v.Type != 0:
			n.Append(edit.Elem{Type: v.Type, Name: h.path.Last(), Val: v.Value})
		}
	}
	return nil
}

// same reports whether a form's values are equal in two records.
func (f form) same(e *edit.Editor, a, b *edit.Node, anyOrder bool) bool {
	for _, h := range f.fields {
		x, okX := e.ValueAt(a, h.path)
		y, okY := e.ValueAt(b, h.path)
		if !okX || !okY || !edit.SameValue(x, y) && !(anyOrder && edit.SameFields(x, y)) {
			return false
		}
	}
	return true
}
