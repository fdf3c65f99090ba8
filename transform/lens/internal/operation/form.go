package operation

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
	// Fields have their meaning together: either all keep their forms, or none does.
	Fields   []Holding
	anyOrder bool // values that differ only in the order of fields have the same meaning
}

// former is an op that makes values whose form the far side keeps.
type former interface{ Forms() []form }

// addForms traces the forms of an operation to the far side.
func (p *Program) addForms(o Op, after []Op) error {
	f, ok := o.(former)
	if !ok {
		return nil
	}
	for _, made := range f.Forms() {
		// The far side keeps the form, under the name that the field has there.
		far, err := made.Trace(after)
		if err != nil {
			return err
		}
		if len(far.Fields) > 0 {
			p.Forms = append(p.Forms, far)
		}
	}
	return nil
}

// Trace follows a form through ops to the far side.
func (f form) Trace(ops []Op) (form, error) {
	for _, o := range ops {
		out := form{anyOrder: f.anyOrder}
		for _, h := range f.Fields {
			far, err := h.traceForm(o)
			if f.anyOrder && errors.Is(err, errFormGone) {
				continue // field order in a removed value needs no care: the child has its own
			}
			if err != nil {
				return f, err
			}
			for _, next := range far {
				// Two fields may have become one.
				if !slices.ContainsFunc(out.Fields, func(have Holding) bool { return have.Path.Equal(next.Path) }) {
					out.Fields = append(out.Fields, next)
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
func (h Holding) traceForm(o Op) ([]Holding, error) {
	if c, ok := o.(*Calc); ok && slices.ContainsFunc(c.From, h.Path.Under) {
		var out []Holding
		for _, to := range c.To {
			out = append(out, Holding{Path: to, matches: h.matches[:to.Items()], By: h.By})
		}
		return out, nil
	}
	if list, ok := listed(o); ok && h.Path.Under(list) {
		return []Holding{{Path: list, matches: h.matches[:list.Items()], By: h.By}}, nil
	}
	far, f, err := h.Trace([]Op{o})
	if err == nil && f == Gone {
		err = fmt.Errorf("it takes away %s, %w (%s)", h.Path, errFormGone, o)
	}
	return []Holding{far}, err
}

// withinRecord returns the operations that need no other record.
func withinRecord(ops []Op) []Op {
	return slices.DeleteFunc(slices.Clone(ops), func(o Op) bool {
		_, ok := o.(Grouped)
		return ok
	})
}

// meaning holds the new record and the target's record, both in the lens's own form. It is computed
// only if the two differ.
type meaning struct {
	e    *edit.Editor
	p    *Program
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
	for _, ops := range [][]Op{m.p.back, m.p.there} {
		for _, o := range ops {
			if o.Apply(m.e, n) != nil {
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
func (p *Program) keepForms(e *edit.Editor, root, have *edit.Node, doc bson.Raw) error {
	if len(p.Forms) == 0 {
		return nil
	}
	m := &meaning{e: e, p: p, root: root, have: doc}
	c := forms{e: e, root: root, have: have, meaning: m.nodes}
	for _, f := range p.Forms {
		if err := c.keep(f); err != nil {
			return err
		}
	}
	return nil
}

// keep finds the items that contain a form, like complement.
func (c forms) keep(f form) error {
	first := f.Fields[0]
	at := first.Path.ItemAt()
	if at < 0 {
		return c.keepValues(f)
	}
	// Continue with the paths relative to the item.
	inner := form{anyOrder: f.anyOrder}
	for _, h := range f.Fields {
		m := edit.Within(h.matches, at)
		inner.Fields = append(inner.Fields, Holding{Path: h.Path[at:], matches: m[1:], By: h.By})
	}
	list := first.Path[:at]
	match := edit.Within(first.matches, at)[0]
	var madeItem, heldItem func(key string) *edit.Node
	return c.e.PairItems(c.root, c.have, list, match, func(key string, item, haveItem *edit.Node) error {
		return forms{e: c.e, root: item, have: haveItem, meaning: func() (*edit.Node, *edit.Node) {
			// Lazily: most items are equal, and do not need the canonical records. Once for all items:
			// a list has as many as fit into a record.
			if madeItem == nil {
				made, held := c.meaning()
				madeItem, heldItem = c.e.ItemsOf(made, list, match), c.e.ItemsOf(held, list, match)
			}
			return madeItem(key), heldItem(key)
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
	for _, h := range f.Fields {
		n, i, err := c.e.Lookup(c.root, h.Path)
		if err != nil {
			return err
		}
		// The meanings are equal. Take the target's values for all fields of the form.
		v, ok := c.e.ValueAt(c.have, h.Path)
		switch {
		case !ok || n == nil:
		case v.Type == 0 && i >= 0:
			n.Remove(i)
		case v.Type != 0 && i >= 0:
			n.Set(i, v.Type, v.Value)
		case v.Type != 0:
			n.Append(edit.Elem{Type: v.Type, Name: h.Path.Last(), Val: v.Value})
		}
	}
	return nil
}

// same reports whether a form's values are equal in two records.
func (f form) same(e *edit.Editor, a, b *edit.Node, anyOrder bool) bool {
	for _, h := range f.Fields {
		x, okX := e.ValueAt(a, h.Path)
		y, okY := e.ValueAt(b, h.Path)
		if !okX || !okY || !edit.SameValue(x, y) && !(anyOrder && edit.SameFields(x, y)) {
			return false
		}
	}
	return true
}
