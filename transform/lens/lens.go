package lens

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Lens is a parsed lens. It may be used concurrently. The zero Lens changes nothing.
type Lens struct {
	up, down program
	digest   string
	file     string
	notes    []Note
	kinds    kindNames
	keys     *keys // nil where the key does not change
	fans     []*fan
	// references follow the keys of other lenses. linked is a digest of those, empty
	// until they are found.
	references []*reference
	imports    map[string]importedService
	linked     string
}

// Up returns the new version's document for an old one. have is what the new side holds,
// nil for nothing. The result may be doc itself; neither is ever written to. A document
// without _id, of a record that has no name yet, comes out without one.
func (l *Lens) Up(doc, have bson.Raw) (bson.Raw, error) { return l.up.run(doc, have) }

// Down is Up the other way.
func (l *Lens) Down(doc, have bson.Raw) (bson.Raw, error) { return l.down.run(doc, have) }

// compile sets the operations of both directions.
func (l *Lens) compile(ops []op) error {
	var err error
	if l.up, err = compileProgram(ops); err != nil {
		return err
	}
	l.down, err = compileProgram(inverses(ops))
	return err
}

// inverses returns the reverse.
func inverses(ops []op) []op {
	out := make([]op, 0, len(ops))
	for _, o := range slices.Backward(ops) {
		out = append(out, o.inverse())
	}
	return out
}

// Loss is a field that only one side has, or has in a form of its own. It survives a round
// trip as the complement, as long as the record that holds it does, and a form as long as
// the other side does not change what it means.
type Loss struct {
	Kind      string // of a fanOut's or gather's records; empty for the lens's own
	Field     string // as that side names it; "*" is any item of a list or entry of a map
	Operation string // which loses it, as the lens has it
	// Emptiness: nothing is lost but whether the field is an empty list or map, or none.
	Emptiness bool
}

// Lost lists the fields of the old version that do not survive the way up, and those of
// the new version that do not survive the way down.
func (l *Lens) Lost() (up, down []Loss) {
	up, down = l.down.losses("", ""), l.up.losses("", "")
	for _, o := range l.up.ops {
		// The type of a number in an _id survives as a form does.
		if r, ok := o.(*rekey); ok && (keyWay{r.way.keys, false}).numbers() {
			up = append(up, Loss{Field: string(fieldID), Operation: r.String()})
		}
		if r, ok := o.(*rekey); ok && r.way.numbers() {
			down = append(down, Loss{Field: string(fieldID), Operation: r.String()})
		}
	}
	for _, f := range l.fans {
		field := f.field.String() + "."
		if f.as != asObject {
			field += "*."
		}
		asField, asRecord := f.collect.losses("", field), f.scatter.losses(f.kind, "")
		if f.gather {
			asField, asRecord = asRecord, asField
		}
		up, down = append(up, asField...), append(down, asRecord...)
		if f.present {
			up, down = append(up, f.emptiness(&l.down)...), append(down, f.emptiness(&l.up)...)
		}
	}
	return up, down
}

// emptiness is the field as the far side of a program names it.
func (f *fan) emptiness(p *program) []Loss {
	for _, o := range p.ops {
		var of *fan
		var far path
		switch o := o.(type) {
		case *scatter:
			of, far = o.fan, o.far
		case *collect:
			of, far = o.fan, o.far
		}
		if of == f && far != nil {
			return []Loss{{Field: far.String(), Operation: fmt.Sprintf("%s %s", f.verb(), f.field), Emptiness: true}}
		}
	}
	return nil
}

// losses are what the far side of a program has alone.
func (p *program) losses(kind, prefix string) []Loss {
	var out []Loss
	for _, h := range p.held {
		out = append(out, Loss{Kind: kind, Field: prefix + h.path.String(), Operation: h.by.String()})
	}
	for _, f := range p.forms {
		for _, h := range f.fields {
			out = append(out, Loss{Kind: kind, Field: prefix + h.path.String(), Operation: h.by.String()})
		}
	}
	return out
}
