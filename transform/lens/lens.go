// Package lens makes transformers of YAML: a list of operations on fields, each of
// which can be undone, so that the way back needs no second text.
//
//	lens: 1
//	operations:
//	  - rename: {from: section, to: category}
//	  - move: {from: homepage, to: links.homepage}
//	  - convert: {field: installed_size, from: int, to: long}
//	  - convert: {field: priority, table: {optional: normal, required: base}}
//	  - add: {field: schema, value: 2}
//	  - add: {field: state, default: new}
//	  - remove: {field: legacy, default: ""}
//
// Operations apply in order on the way up, and undone in reverse order on the way down.
// Paths are dotted and name one value each: they do not lead through arrays.
//
//   - rename gives a field another name within its object and leaves it in its place.
//   - move takes a field from one object to another (the record itself is one too).
//     Objects that are missing are made, those left empty are removed.
//   - convert changes the type of a value, or the value by a table. Null and absence
//     stay. The types: string, int, long, double, decimal, bool, objectId, date, rfc3339
//     (a string) and epoch (a long, seconds).
//   - add puts a field into each new record whose parent object is there: with value, a
//     constant that only the lens decides on; with default, a field that the new
//     version's application owns afterwards.
//   - remove takes a field away from each old record. default is what the way down
//     writes into records that the old version never had; without it, nothing.
//
// # Guarantees
//
// Down(Up(x)) is x but for the order of fields that were moved. A value that would not
// come back the same, to the bit, is an error that names operation, field and type; so
// is a record that holds, on one side, a field whose name the lens uses on the other.
// Such a record is parked, never guessed at. Fields that one side cannot hold survive
// there as the complement: a lens with add-default needs it on the way up, one with
// remove on the way down. A record that was not changed comes out over its complement
// as the same bytes. What no operation names keeps its bytes and is not even decoded.
//
// The package does not read collections, and it does not carry indexes over itself: it
// tells how they are called on the other side (MapIndex) and whether a validator speaks
// of fields that it changes (TouchesValidator).
package lens

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// Lens is a parsed lens. It may be used concurrently. The zero Lens changes nothing.
type Lens struct {
	up, down program
	digest   string
}

// program is a lens in one direction.
type program struct {
	ops []op
	// held are the fields, as the far side names them, that only the far side holds.
	held []path
	grow int // bytes by which a document grows at most, about
}

// Spec makes the transformer for a fixed-name kind: any type of _id, each record a
// group of its own.
func (l *Lens) Spec(fromKind, toKind string) transform.Spec {
	return transform.Spec{
		Name:     fromKind,
		Revision: "lens " + l.digest,
		Old:      transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: fromKind, Fixed: true}}}},
		New:      transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: toKind, Fixed: true}}}},
		Up:       l.up.transformer(toKind),
		Down:     l.down.transformer(fromKind),

		UpNeedsHave:   len(l.up.held) > 0,
		DownNeedsHave: len(l.down.held) > 0,
	}
}

func (p *program) transformer(kind string) transform.Func {
	return func(src, have transform.Group) ([]record.Record, error) {
		if len(src.Records) == 0 {
			return nil, nil
		}
		if len(src.Records) > 1 || len(have.Records) > 1 {
			return nil, fmt.Errorf("a lens takes one record, not %d over %d", len(src.Records), len(have.Records))
		}
		var complement bson.Raw
		if len(have.Records) == 1 {
			complement = have.Records[0].Doc
		}
		doc, err := p.run(src.Records[0].Doc, complement)
		if err != nil {
			return nil, err
		}
		return []record.Record{{Kind: kind, Key: src.Records[0].Key, Doc: doc}}, nil
	}
}

// Up returns the new version's document for an old one. have is what the new side holds,
// nil for nothing. The result may be doc itself; neither is ever written to.
func (l *Lens) Up(doc, have bson.Raw) (bson.Raw, error) { return l.up.run(doc, have) }

// Down is Up the other way.
func (l *Lens) Down(doc, have bson.Raw) (bson.Raw, error) { return l.down.run(doc, have) }

func (p *program) run(doc, have bson.Raw) (bson.Raw, error) {
	if len(p.ops) == 0 {
		return doc, nil
	}
	e := editors.Get().(*editor)
	defer e.release()
	root, err := e.open(doc)
	if err != nil {
		return nil, err
	}
	for _, o := range p.ops {
		if err := o.apply(e, root); err != nil {
			return nil, fmt.Errorf("%s: %w", o, err)
		}
	}
	if !root.dirty() && (have == nil || len(p.held) == 0) {
		return doc, nil
	}
	if have != nil {
		h, err := e.open(have)
		if err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
		if err := e.complement(root, h, p.held); err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
		if err := e.settle(root, h); err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
	}
	return root.encode(make([]byte, 0, len(doc)+p.grow)), nil
}

// compileProgram finds what a list of operations needs of the complement.
func compileProgram(ops []op) program {
	p := program{ops: ops}
	for i, o := range ops {
		for _, part := range o.makes() {
			p.grow += len(part) + 8
		}
		switch o := o.(type) {
		case *add:
			p.grow += len(o.val)
			if o.constant {
				continue
			}
			field, f := o.field, kept
			for _, later := range ops[i+1:] {
				if field, f = later.trace(field); f == gone {
					break
				}
			}
			if f != gone {
				p.held = append(p.held, field)
			}
		case *convert, *table:
			p.grow += 32
		}
	}
	return p
}

func newLens(ops []op, data []byte) *Lens {
	inverse := make([]op, 0, len(ops))
	for i := len(ops) - 1; i >= 0; i-- {
		inverse = append(inverse, ops[i].inverse())
	}
	sum := sha256.Sum256(data)
	return &Lens{up: compileProgram(ops), down: compileProgram(inverse), digest: hex.EncodeToString(sum[:])}
}
