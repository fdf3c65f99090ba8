package lens

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
)

func (p *lensParser) fanOut(n ast.Node) (operation.Op, error) {
	f, err := p.fan(n, "fanOut")
	if err != nil {
		return nil, err
	}
	return &fanout.Scatter{Fan: f}, nil
}

func (p *lensParser) gather(n ast.Node) (operation.Op, error) {
	f, err := p.fan(n, "gather")
	if err != nil {
		return nil, err
	}
	return &fanout.Collect{Fan: f}, nil
}

// fan reads the body of fanOut or gather. Each is the reverse of the other.
func (p *lensParser) fan(n ast.Node, verb string) (*fanout.Fan, error) {
	// A field of an item has no record of its own to tie children to.
	within := p.within
	if p.inItem > 0 {
		within = "each"
	}
	if within != "" {
		return nil, p.errorAt(n, "%s cannot be within %s: only fields of the record itself can become records", verb, within)
	}
	m, err := p.fields(n, verb, []string{"field", "as", "kind", "key"}, []string{"id", "value", "parent", "order", "unnamed", "empty", "operations"})
	if err != nil {
		return nil, err
	}
	f := &fanout.Fan{Gather: verb == "gather"}
	if f.Field, err = p.path(m["field"], "field"); err != nil {
		return nil, err
	}
	as, err := scalarText(m["as"])
	f.As = fanout.Shape(as)
	if err != nil || !slices.Contains([]fanout.Shape{fanout.AsList, fanout.AsMap, fanout.AsObject}, f.As) {
		return nil, p.errorAt(m["as"], "as is one of: %s, %s, %s", fanout.AsList, fanout.AsMap, fanout.AsObject)
	}
	if f.Kind, err = p.kind(m["kind"], "kind"); err != nil {
		return nil, err
	}
	for _, other := range p.lens.fans {
		// Two fans with one kind could not tell their children apart.
		if other.Kind == f.Kind && other.Gather == f.Gather {
			return nil, p.errorAt(m["kind"], "%[2]s %[3]s already makes the records of %[1]s", f.Kind, other.Verb(), other.Field)
		}
	}
	// The order of these steps matters: the key refers to the fields, and order and the rest to the
	// key.
	if err := p.fanFields(f, m); err != nil {
		return nil, err
	}
	if err := p.fanKey(f, m["key"], verb); err != nil {
		return nil, err
	}
	if err := p.fanOrder(f, m); err != nil {
		return nil, err
	}
	if err := p.fanUnnamed(f, m["unnamed"]); err != nil {
		return nil, err
	}
	if err := p.fanEmpty(f, m["empty"]); err != nil {
		return nil, err
	}
	if err := p.fanOperations(f, m["operations"], verb); err != nil {
		return nil, err
	}
	// Not an error: data may be unique anyway, for example with object ids.
	if f.ByContent() && !f.NamesParent() {
		at := p.position(m["key"])
		p.lens.notes = append(p.lens.notes, Note{at.line, at.column, fmt.Sprintf("the keys of %s do not contain the key of the parent record: entries of two records with the same key would become one; only the data show whether such entries exist", f.Kind)})
	}
	p.lens.fans = append(p.lens.fans, f)
	return f, nil
}

// fanFields reads the names of fields.
func (p *lensParser) fanFields(f *fanout.Fan, m map[string]ast.Node) (err error) {
	if n := m["id"]; n != nil {
		if f.As == fanout.AsObject {
			return p.errorAt(n, "id is for the entries of a list or map; an object is one record")
		}
		// id means two things: for a map the child's field of the name, for a list the item's
		// field.
		if f.As == fanout.AsMap {
			if f.Entry, err = p.childField(n, "id"); err != nil {
				return err
			}
		} else if f.ID, err = p.itemField(n, "id"); err != nil {
			return err
		}
	}
	for _, field := range []struct {
		key  string
		into *[]byte
	}{{"value", &f.Value}, {"parent", &f.Parent}, {"order", &f.Order}} {
		if n := m[field.key]; n != nil {
			if *field.into, err = p.childField(n, field.key); err != nil {
				return err
			}
		}
	}
	if f.Value != nil && (f.ID != nil || f.As == fanout.AsObject) {
		return p.errorAt(m["value"], "value is for entries without fields of their own: not with id, and not for an object")
	}
	seen := map[string]bool{}
	for _, key := range []string{"value", "parent", "order", "id"} {
		if m[key] == nil || key == "id" && f.As == fanout.AsList {
			continue
		}
		// One field of the child cannot have two meanings.
		name, _ := scalarText(m[key])
		if seen[name] {
			return p.errorAt(m[key], "two of value, parent, order and id name the field %s", name)
		}
		seen[name] = true
	}
	return nil
}

// fanUnnamed reads unnamed, the rule for an object that an application creates without an _id.
func (p *lensParser) fanUnnamed(f *fanout.Fan, n ast.Node) error {
	if n == nil {
		return nil
	}
	if text, err := scalarText(n); err != nil || text != string(fanout.UnnamedParent) {
		return p.errorAt(n, "unnamed: unknown name %q; allowed: %s", strings.TrimSpace(n.String()), fanout.UnnamedParent)
	}
	// Only such an object has its record's _id, which it could omit.
	if f.As != fanout.AsObject || !f.OwnID() {
		return p.errorAt(n, "unnamed is for an object whose _id is the key of its record: as: object, and key: \"{%s%s:objectId}\" or of another type", keymap.ItemPrefix, edit.FieldID)
	}
	f.Unnamed = fanout.UnnamedParent
	return nil
}

// fanEmpty reads empty, the rule for a record without entries.
func (p *lensParser) fanEmpty(f *fanout.Fan, n ast.Node) error {
	if n == nil {
		return nil
	}
	text, err := scalarText(n)
	rule := emptyRule(text)
	if err != nil || !slices.Contains(emptyRules, rule) {
		return p.errorAt(n, "empty: unknown rule %q; allowed: %s, %s", strings.TrimSpace(n.String()), emptyAbsent, emptyPresent)
	}
	if f.As == fanout.AsObject {
		return p.errorAt(n, "empty is for a list or map; an object without fields becomes a record")
	}
	f.Present = rule == emptyPresent
	p.fanAt[f] = p.position(n)
	return nil
}

// emptyRule is the state of the field in a record without entries.
type emptyRule string

const (
	// emptyAbsent is the default: a record has an empty list or map only if it is stored.
	emptyAbsent emptyRule = "absent"
	// emptyPresent gives every new record the empty list or map.
	emptyPresent emptyRule = "present"
)

var emptyRules = []emptyRule{emptyAbsent, emptyPresent}

// childField reads the name of a top-level field of a child.
func (p *lensParser) childField(n ast.Node, key string) ([]byte, error) {
	field, err := p.path(n, key)
	if err != nil {
		return nil, err
	}
	if len(field) > 1 {
		return nil, p.errorAt(n, "%s is a field at the top of the record, without dots", key)
	}
	return field[0], nil
}

// itemField reads the path of a field of an item, which may be its _id.
func (p *lensParser) itemField(n ast.Node, key string) (edit.Path, error) {
	if text, err := scalarText(n); err == nil && text == string(edit.FieldID) {
		return edit.Path{edit.FieldID}, nil
	}
	return p.path(n, key)
}

// fanOperations reads the operations on the children. The lens always writes them from old to new,
// also for gather.
func (p *lensParser) fanOperations(f *fanout.Fan, n ast.Node, verb string) error {
	if n == nil {
		return nil
	}
	within := p.within
	p.within = verb
	ops, err := p.operationList(n)
	// Restore before the error return: nested errors must not change what later operations accept.
	p.within = within
	if err != nil {
		return err
	}
	up, err := operation.Compile(ops)
	if err != nil {
		return p.errorAt(n, "%v", err)
	}
	down, err := operation.Compile(operation.Inverses(ops))
	if err != nil {
		return p.errorAt(n, "%v", err)
	}
	// scatter always goes from the entry to the record, so gather swaps the two.
	f.Scatter, f.Collect = up, down
	if f.Gather {
		f.Scatter, f.Collect = down, up
	}
	p.fanAt[f] = p.position(n)
	if f.Value == nil {
		return nil
	}
	// An entry without fields may become an object with fields, but a child must give back the
	// plain entry.
	for _, o := range f.Collect.Ops {
		for _, made := range o.Makes() {
			if string(made[0]) != string(f.Value) {
				return p.errorAt(n, "%s makes %s for entries of %s, which have no fields of their own: %s holds the entry", o, made, f.Field, f.Value)
			}
		}
	}
	return nil
}

// complete does the checks that need all operations: it links references to the lens itself, and
// places the fans.
func (p *lensParser) complete() error {
	for _, o := range p.lens.references {
		if o.to.kind == selfKind {
			if err := o.to.link(setKind{lens: p.lens}, nil); err != nil {
				return err
			}
		}
	}
	// A fan in the middle of a lens sees field names of that point, not of the far side.
	for _, program := range []*operation.Program{&p.lens.up, &p.lens.down} {
		if f := fanout.Place(program); f != nil {
			why := "the entries of " + f.Field.String() + " have fields that only one version has"
			if f.Present {
				why = "with empty: present a record keeps " + f.Field.String() + " as it is"
			}
			return p.fanAt[f].errorf("%s, and a later operation works on %s: write %s after it", why, f.Field, f.Verb())
		}
	}
	return nil
}
