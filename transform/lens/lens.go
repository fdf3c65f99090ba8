package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// Lens is a parsed lens. It is safe for concurrent use. The zero Lens changes nothing.
type Lens struct {
	up, down operation.Program
	digest   string
	file     string
	notes    []Note
	kinds    kindNames
	keys     *keymap.Keys // nil if the key does not change
	fans     []*fanout.Fan
	// references follow the keys of other lenses. linked is a digest of those keys, and empty
	// before Set.Link.
	references []*reference
	imports    map[string]importedService
	linked     string
}

// Up returns the new version's document for an old one. have is the document that the new side
// holds, or nil. The result may be doc itself. Up modifies neither argument. A document without
// _id, as a record without a name has it, stays without one.
func (l *Lens) Up(doc, have bson.Raw) (bson.Raw, error) { return l.up.Run(doc, have) }

// Down returns the old version's document for a new one. It is the reverse of Up.
func (l *Lens) Down(doc, have bson.Raw) (bson.Raw, error) { return l.down.Run(doc, have) }

// compile sets the programs of both directions.
func (l *Lens) compile(ops []operation.Op) error {
	var err error
	if l.up, err = operation.Compile(ops); err != nil {
		return err
	}
	l.down, err = operation.Compile(operation.Inverses(ops))
	return err
}

// Loss is a field, or the form of a value, that only one side has. A field survives a round trip as
// the complement, as long as its record exists. A form survives as long as the other side does not
// change the value's meaning.
type Loss struct {
	Kind      string // kind of the records of a fanOut or gather; empty for the lens's own kind
	Field     string // name on that side; "*" is any item of a list or entry of a map
	Operation string // the operation that loses the field
	// Emptiness means that only the difference between an empty and an absent list or map is lost.
	Emptiness bool
}

// Lost returns the fields of the old version that Up loses, and the fields of the new version that
// Down loses.
func (l *Lens) Lost() (up, down []Loss) {
	up, down = losses(&l.down, "", ""), losses(&l.up, "", "")
	for _, o := range l.up.Ops {
		// The type of a number in an _id survives like a form.
		if r, ok := o.(*operation.Rekey); ok && (keymap.Way{Keys: r.Way.Keys, Up: false}).Numbers() {
			up = append(up, Loss{Field: string(edit.FieldID), Operation: r.String()})
		}
		if r, ok := o.(*operation.Rekey); ok && r.Way.Numbers() {
			down = append(down, Loss{Field: string(edit.FieldID), Operation: r.String()})
		}
	}
	for _, f := range l.fans {
		field := f.Field.String() + "."
		if f.As != fanout.AsObject {
			field += "*."
		}
		// An entry's field is a path of the parent on one side, and a field of the child on the
		// other.
		asField, asRecord := losses(&f.Collect, "", field), losses(&f.Scatter, f.Kind, "")
		if f.Gather {
			asField, asRecord = asRecord, asField
		}
		up, down = append(up, asField...), append(down, asRecord...)
		if f.Present {
			up, down = append(up, emptiness(f, &l.down)...), append(down, emptiness(f, &l.up)...)
		}
	}
	return up, down
}

// emptiness is the Loss of a fan's field, under the name that the far side of a program has for it.
func emptiness(f *fanout.Fan, p *operation.Program) []Loss {
	for _, o := range p.Ops {
		var of *fanout.Fan
		var far edit.Path
		switch o := o.(type) {
		case *fanout.Scatter:
			of, far = o.Fan, o.Far
		case *fanout.Collect:
			of, far = o.Fan, o.Far
		}
		// Without a far path, the other side does not keep the field at all.
		if of == f && far != nil {
			return []Loss{{Field: far.String(), Operation: fmt.Sprintf("%s %s", f.Verb(), f.Field), Emptiness: true}}
		}
	}
	return nil
}

// losses lists everything that only the far side of a program has.
func losses(p *operation.Program, kind, prefix string) []Loss {
	var out []Loss
	for _, h := range p.Held {
		out = append(out, Loss{Kind: kind, Field: prefix + h.Path.String(), Operation: h.By.String()})
	}
	for _, f := range p.Forms {
		for _, h := range f.Fields {
			out = append(out, Loss{Kind: kind, Field: prefix + h.Path.String(), Operation: h.By.String()})
		}
	}
	return out
}
