package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// add puts a field into each record whose parent object is there; drop, its inverse,
// takes it out. What drop takes out survives on the other side as the complement, or
// is the constant.
type add struct {
	field    path
	from     path      // where the value is copied from; nil: the value is val
	typ      bson.Type // 0: nothing to put where the complement has nothing
	val      []byte
	constant bool
	verb     string // how the lens calls the operation
}

func (o *add) String() string {
	if o.from != nil {
		return fmt.Sprintf("%s %s to %s", o.verb, o.from, o.field)
	}
	return fmt.Sprintf("%s %s", o.verb, o.field)
}
func (o *add) inverse() op     { return (*drop)(o) }
func (o *add) takes() []path   { return nil }
func (o *add) makes() []path   { return []path{o.field} }
func (o *add) changes() []path { return nil }

func (o *add) reads() []path {
	if o.from == nil {
		return nil
	}
	return []path{o.from}
}

func (o *add) holds() []holding {
	if o.constant {
		return nil
	}
	return []holding{{path: o.field, by: o}}
}

// forms: of a constant that is an object, the order of fields is the application's.
func (o *add) forms() []form {
	if !o.constant || !hasItems(o.typ) {
		return nil
	}
	return []form{{fields: []holding{{path: o.field, by: orderOf{o}}}, anyOrder: true}}
}

func (o *add) trace(p path) (path, fate) { return traceOneSided(p, o.field, clashes) }

// traceOneSided is the trace of an op whose field only one side has; within is the fate of what
// lies in it.
func traceOneSided(p, field path, within fate) (path, fate) {
	switch {
	case p.under(field):
		return nil, within
	case field.under(p):
		return p, covers
	}
	return p, kept
}

func (o *add) apply(e *editor, root *node) error {
	typ, val := o.typ, o.val
	if o.from != nil {
		from, i, err := e.lookup(root, o.from)
		if err != nil {
			return err
		}
		if i >= 0 {
			typ, val = from.elems[i].typ, from.elems[i].value()
		}
	}
	n, err := e.parent(root, o.field)
	if err != nil || n == nil {
		return err
	}
	if err := absent(n, o.field); err != nil {
		return err
	}
	if typ != 0 {
		n.append(elem{typ: typ, name: o.field.last(), val: val})
	}
	return nil
}

type drop add

func (o *drop) String() string  { return (*add)(o).String() }
func (o *drop) inverse() op     { return (*add)(o) }
func (o *drop) takes() []path   { return []path{o.field} }
func (o *drop) makes() []path   { return nil }
func (o *drop) changes() []path { return nil }

func (o *drop) trace(p path) (path, fate) { return traceOneSided(p, o.field, gone) }

func (o *drop) apply(e *editor, root *node) error {
	if o.from != nil {
		// The reverse reads it again.
		if _, _, err := e.lookup(root, o.from); err != nil {
			return err
		}
	}
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 {
		return err
	}
	el := &n.elems[i]
	if is := (bson.RawValue{Type: el.typ, Value: el.value()}); o.constant && !sameFields(is, bson.RawValue{Type: o.typ, Value: o.val}) {
		return refuse(o.field, "is %s (%s), not the constant %s, which the other side could not give back",
			show(el.typ, el.value()), TypeName(el.typ), show(o.typ, o.val))
	}
	n.remove(i)
	return nil
}

var (
	_ holder = (*add)(nil)
	_ former = (*add)(nil)
	_ reader = (*add)(nil)
)
