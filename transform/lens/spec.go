package lens

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// SpecOption changes the result of Spec.
type SpecOption func(*specConfig)

type specConfig struct{ managed bool }

// Managed declares the kinds as managed: only a Go service reaches them, through the store. Without
// it they are fixed-name kinds.
func Managed() SpecOption { return func(c *specConfig) { c.managed = true } }

// Spec returns the transformer of the lens, from one kind to another, including the kinds that
// fanOut and gather name. Empty arguments mean the lens's own kinds. A lens with references must be
// linked first (Set.Link).
//
// Groups follow from keys where possible. A group is then a single record, or a record with its
// children, whose keys contain its name. Otherwise groups go by content.
func (l *Lens) Spec(from, to string, options ...SpecOption) transform.Spec {
	var c specConfig
	for _, o := range options {
		o(&c)
	}
	if from == "" {
		from = l.kinds.from
	}
	if to == "" {
		to = l.kinds.to
	}
	s := transform.Spec{
		Name:          from,
		Revision:      "lens " + l.digest,
		Up:            (&transformer{l, true, from, to}).run,
		Down:          (&transformer{l, false, to, from}).run,
		UpNeedsHave:   needsHave(&l.up),
		DownNeedsHave: needsHave(&l.down),
		// Operations reject every value that they could not take back.
		Reversal: transform.ReversalOwn,
	}
	if len(l.fans) > 0 {
		// Several records take part, and no operation checks them together.
		s.Reversal = transform.ReversalTried
	}
	if len(l.references) > 0 {
		// The result also depends on the keys of the referenced kinds.
		s.Revision += " references " + l.linked
		s.Imports = l.rewrites(from)
	}
	m := members{Lens: l, from: from, to: to}
	s.Old.Kinds, s.New.Kinds = m.kinds()
	for _, side := range [][]transform.GroupedKind{s.Old.Kinds, s.New.Kinds} {
		for i := range side {
			// A lens usually serves a program in any language, which reaches its collections by
			// name.
			side[i].Fixed = !c.managed
		}
	}
	if !l.byContent() {
		s.UpNames, s.DownNames = l.UpMapping(), l.DownMapping()
		// With a GroupOf the default anchor does not apply. The record itself always exists once in
		// its group.
		if s.Old.Kinds[0].GroupOf != nil {
			s.Old.Anchor = func(group string) (string, record.Key) { return from, record.Key(group) }
		}
		if s.New.Kinds[0].GroupOf != nil {
			s.New.Anchor = func(group string) (string, record.Key) { return to, m.newKey(group) }
		}
	}
	return s
}

// Kinds returns the kinds of both sides: from and to first, then the kinds that gather (old) and
// fanOut (now) name. Unlike Spec, it does not replace an empty from or to.
func (l *Lens) Kinds(from, to string) (old, now []string) {
	old, now = []string{from}, []string{to}
	for _, f := range l.fans {
		if f.Gather {
			old = append(old, f.Kind)
		} else {
			now = append(now, f.Kind)
		}
	}
	return old, now
}

// needsHave reports whether a program reads the target's record. It does for fields that only the
// target has, for the order of list entries, and for the places of fields that come from outside
// the record. Without the places, an unchanged record would get other bytes.
func needsHave(p *operation.Program) bool {
	return p.Keeps() || slices.ContainsFunc(p.Ops, func(o operation.Op) bool {
		switch o := o.(type) {
		case *fanout.Scatter:
			return o.As != fanout.AsObject || o.Order != nil || o.Fan.Scatter.Keeps()
		case *operation.Rekey:
			return o.Way.Numbers()
		case *operation.KeyField:
			return len(o.Makes()) > 0
		case *fanout.Collect:
			return true
		default:
			return false
		}
	})
}

// transformer is a lens in one direction between named kinds.
type transformer struct {
	lens     *Lens
	up       bool
	from, to string
}

// run implements transform.Func.
func (t *transformer) run(src, have transform.Group) ([]record.Record, error) {
	if len(src.Records) == 0 {
		return nil, nil
	}
	main, others, err := apart(src.Records, t.from)
	if err != nil {
		return nil, err
	}
	// Children without their parent have no counterpart. Only the application knows which one is
	// wrong.
	if main == nil {
		r := src.Records[0]
		return nil, fmt.Errorf("record %s of %s belongs to a missing record of %s: create that record, or delete this one", r.Key, r.Kind, t.from)
	}
	held, haveOthers, err := apart(have.Records, t.to)
	if err != nil {
		return nil, err
	}
	var complement bson.Raw
	if held != nil {
		complement = held.Doc
	}
	l := t.lens
	p := &l.up
	if !t.up {
		p = &l.down
	}
	// Most lenses touch single records. They need no group.
	if l.keys == nil && len(l.fans) == 0 {
		doc, err := p.Run(main.Doc, complement)
		if err != nil {
			return nil, err
		}
		return []record.Record{{Kind: t.to, Key: main.Key, Doc: doc}}, nil
	}
	// A lens that changes only the key copies the rest of the document without parsing it.
	if t.onlyRekeys(p) {
		was, ok := edit.LookupRaw(main.Doc, edit.Path{edit.FieldID})
		if !ok {
			return nil, errNoID
		}
		id, key, err := keymap.Way{Keys: l.keys, Up: t.up}.Identity(was, scalar.ReadStored, main.Doc)
		if err != nil {
			return nil, err
		}
		if doc, ok := edit.WithID(main.Doc, keymap.Way{Keys: l.keys, Up: t.up}.Kept(id, complement)); ok {
			return []record.Record{{Kind: t.to, Key: key, Doc: doc}}, nil
		}
	}
	// All other lenses run on the parsed record with its group.
	g := edit.Group{Children: others, Have: haveOthers, Main: complement, Out: make([]record.Record, 1, 4)}
	key, err := t.identify(&g, main)
	if err != nil {
		return nil, err
	}
	doc, err := p.RunGroup(main.Doc, complement, &g)
	if err != nil {
		return nil, err
	}
	// Index 0 was reserved for the record; its children follow it.
	g.Out[0] = record.Record{Kind: t.to, Key: key, Doc: doc}
	return g.Out, nil
}

var errNoID = errors.New("the record has no _id")

var errNotLinked = errors.New("the lens has references, but nothing linked it")

// onlyRekeys reports whether a program changes only the _id.
func (t *transformer) onlyRekeys(p *operation.Program) bool {
	if len(p.Ops) != 1 {
		return false
	}
	_, ok := p.Ops[0].(*operation.Rekey)
	return ok
}

// identify sets the record's ids on both sides and returns the target's key.
func (t *transformer) identify(g *edit.Group, main *record.Record) (record.Key, error) {
	source, target := 0, 1
	if !t.up {
		source, target = 1, 0
	}
	id, ok := edit.LookupRaw(main.Doc, edit.Path{edit.FieldID})
	if !ok {
		return "", errNoID
	}
	g.IDs[source] = edit.MainID{Value: id, Key: main.Key}
	// Without key changes both sides have the same _id.
	g.IDs[target] = g.IDs[source]
	if t.lens.keys == nil {
		return main.Key, nil
	}
	to, key, err := keymap.Way{Keys: t.lens.keys, Up: t.up}.Identity(id, scalar.ReadStored, main.Doc)
	if err != nil {
		return "", err
	}
	g.IDs[target] = edit.MainID{Value: keymap.Way{Keys: t.lens.keys, Up: t.up}.Kept(to, g.Main), Key: key}
	return key, nil
}

// apart separates the record of a kind from the other records of a group.
func apart(rs []record.Record, kind string) (main *record.Record, others []record.Record, err error) {
	if len(rs) == 1 {
		if rs[0].Kind == kind {
			return &rs[0], nil, nil
		}
		return nil, rs, nil
	}
	ours := fanout.RecordsOf(rs, kind)
	switch len(ours) {
	case 0:
		return nil, rs, nil
	case 1:
		// Callers select children by kind, so the record may stay in others.
		return &ours[0], rs, nil
	}
	return nil, nil, fmt.Errorf("records %s and %s of %s would be one record of the other version", ours[0].Key, ours[1].Key, kind)
}
