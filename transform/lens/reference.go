package lens

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// selfKind is the name of the lens's own kind in a reference.
const selfKind = "self"

// reference is a field with the key of a record of another kind. Its values follow that kind's keys
// in both directions. Absent and null fields stay.
type reference struct {
	field    edit.Path
	list     bool      // the field is a list of keys
	optional bool      // values that are not keys of the kind stay
	both     edit.Path // path of the list of old and new keys, while a data update holds both; nil: none
	to       *target
	up       bool
}

// target is the kind that a reference points to. Linking the lens fills it in.
type target struct {
	kind, service string
	with          []targetPart
	keys          *keymap.Keys // nil: keys are the same on both sides
	old, now      string       // names of the kind in the two versions
	linked        bool
	asks          bool // keys that do not follow from keys alone are looked up
	at            position
}

// targetPart is a field next to the reference. It holds a part of the key that only one version's
// keys have.
type targetPart struct {
	name  string // of the variable
	field edit.Path
	typ   scalar.IDType
	slot  int // of the variable in keys
	at    position
}

func (o *reference) String() string { return fmt.Sprintf("reference %s to %s", o.field, o.to.kind) }
func (o *reference) Inverse() operation.Op {
	back := *o
	back.up = !o.up
	return &back
}
func (o *reference) Takes() []edit.Path   { return nil }
func (o *reference) Makes() []edit.Path   { return nil }
func (o *reference) Changes() []edit.Path { return []edit.Path{o.field} }
func (o *reference) Reads() []edit.Path {
	ps := make([]edit.Path, len(o.to.with))
	for i, p := range o.to.with {
		ps[i] = p.field
	}
	return ps
}

func (o *reference) Trace(p edit.Path) (edit.Path, operation.Fate) {
	return operation.TraceConvert(p, o.field)
}

func (o *reference) Apply(e *edit.Editor, root *edit.Node) error {
	if !o.to.linked {
		return errNotLinked
	}
	// The keys of the target kind do not change.
	if o.to.keys == nil {
		return nil
	}
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	var parts [keymap.MaxVariables]string
	// Read the parts once: they are the same for all keys of a list.
	if err := o.parts(e, root, parts[:]); err != nil {
		return err
	}
	el := &n.Elems[i]
	if !o.list {
		typ, val, err := o.value(e, el.Type, el.Value(), parts[:])
		if err != nil {
			return edit.Refuse(o.field, "%v", err)
		}
		if val != nil {
			n.Set(i, typ, val)
		}
		return nil
	}
	if el.Type != bson.TypeArray {
		return edit.Refuse(o.field, "is of type %s, not a list of keys", edit.TypeName(el.Type))
	}
	// Map each key of the list in its place.
	items, err := e.OpenAt(el)
	if err != nil {
		return err
	}
	for k := range items.Elems {
		item := &items.Elems[k]
		typ, val, err := o.value(e, item.Type, item.Value(), parts[:])
		if err != nil {
			return edit.Refuse(o.field.Join(edit.Path{strconv.AppendInt(nil, int64(k), 10)}), "%v", err)
		}
		if val != nil {
			items.Set(k, typ, val)
		}
	}
	return nil
}

// parts reads the key's parts from other fields into the slots of their variables.
func (o *reference) parts(e *edit.Editor, root *edit.Node, parts []string) error {
	for _, p := range o.to.with {
		n, i, err := e.Lookup(root, p.field)
		if err != nil {
			return err
		}
		if i < 0 {
			return fmt.Errorf("the record has no %s, which is {%s} of the key of %s", p.field, p.name, o.to.kind)
		}
		text, err := p.typ.Read(bson.RawValue{Type: n.Elems[i].Type, Value: n.Elems[i].Value()}, scalar.ReadExact)
		if err == nil {
			err = o.to.keys.Variables[p.slot].Take(text)
		}
		if err != nil {
			return fmt.Errorf("%s %w", p.field, err)
		}
		parts[p.slot] = text
	}
	return nil
}

// fill adds the parts from other fields to the target's values. A part that the key also contains
// must be equal, or the reverse would point to another record.
func (o *reference) fill(way keymap.Way, values, parts []string) error {
	src, _ := way.Source()
	for _, p := range o.to.with {
		if slices.Contains(src.Variables, p.name) && values[p.slot] != parts[p.slot] {
			return fmt.Errorf("has another {%s} than %s, and the reverse could not restore it", p.name, p.field)
		}
		values[p.slot] = parts[p.slot]
	}
	return nil
}

// value maps one key. A nil result means that the value stays.
func (o *reference) value(e *edit.Editor, typ bson.Type, val []byte, parts []string) (bson.Type, []byte, error) {
	way, id := keymap.Way{Keys: o.to.keys, Up: o.up}, bson.RawValue{Type: typ, Value: val}
	var values [keymap.MaxVariables]string
	err := way.Read(id, scalar.ReadExact, values[:])
	if err == nil {
		if err := o.fill(way, values[:], parts); err != nil {
			return 0, nil, err
		}
		typ, val = e.Id(func(dst []byte) (bson.Type, []byte) { return way.AppendTarget(dst, values[:]) })
		return typ, val, nil
	}
	// A better message for the frequent mistake of another type.
	if src, _ := way.Source(); !o.optional && src.Textual() && typ != bson.TypeString {
		return 0, nil, fmt.Errorf("is %s (%s), not a key of %s", edit.Show(typ, val), edit.TypeName(typ), o.to.kind)
	}
	if !o.optional {
		return 0, nil, fmt.Errorf("is no key of %s: %w", o.to.kind, err)
	}
	// The value may stay only if the reverse leaves it as well. It must not equal a key except for
	// the number type, because it would then point to nothing.
	if key, errKey := record.KeyOf(id); errKey == nil && way.Read(key.Value(), scalar.ReadKey, values[:]) == nil {
		return 0, nil, fmt.Errorf("equals a key of %s, but %w", o.to.kind, err)
	}
	if err := (keymap.Way{Keys: o.to.keys, Up: !o.up}).Read(id, scalar.ReadExact, values[:]); err == nil {
		return 0, nil, fmt.Errorf("is %s, which is a key of %s only in the other version: the reverse would change it", edit.Show(typ, val), o.to.kind)
	}
	return 0, nil, nil
}

var (
	_ operation.Op       = (*reference)(nil)
	_ operation.Comparer = (*reference)(nil)
)

// reference reads the operation reference.
func (p *lensParser) reference(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "reference", []string{"field", "kind"}, []string{"service", "list", "optional", "with", "both"})
	if err != nil {
		return nil, err
	}
	o := &reference{up: true, to: &target{at: p.position(f["kind"])}}
	if o.field, err = p.path(f["field"], "field"); err != nil {
		return nil, err
	}
	if o.to.kind, err = p.kind(f["kind"], "kind"); err != nil {
		return nil, err
	}
	if o.list, err = p.flag(f["list"], "list"); err != nil {
		return nil, err
	}
	if o.optional, err = p.flag(f["optional"], "optional"); err != nil {
		return nil, err
	}
	if s := f["service"]; s != nil {
		if o.to.service, err = scalarText(s); err != nil {
			return nil, p.errorAt(s, "service is a name from imports")
		}
		if _, known := p.lens.imports[o.to.service]; !known {
			return nil, p.errorAt(s, "service %q is not in imports", o.to.service)
		}
		if o.to.kind == selfKind {
			return nil, p.errorAt(f["kind"], "kind %s is of this lens, not of another service", selfKind)
		}
	}
	if o.to.with, err = p.targetParts(f["with"]); err != nil {
		return nil, err
	}
	if n := f["both"]; n != nil {
		if o.both, err = p.path(n, "both"); err != nil {
			return nil, err
		}
		switch {
		case o.to.service == "":
			return nil, p.errorAt(n, "both is for a kind of another service: name it with service and imports")
		// Clients must find the list next to the field.
		case o.field.IsItem() || o.field.Equal(o.both) || !o.field.Parent().Equal(o.both.Parent()):
			return nil, p.errorAt(n, "both must name another field of the object that has %s: the list of the old and new keys", o.field)
		}
		at := p.position(n)
		p.lens.notes = append(p.lens.notes, Note{at.line, at.column, fmt.Sprintf("%s is for data updates: in an upgrade this lens does not change the field", o.both)})
	}
	p.lens.references = append(p.lens.references, o)
	return o, nil
}

// targetParts reads with: the fields that hold parts of the key.
func (p *lensParser) targetParts(n ast.Node) ([]targetPart, error) {
	values, err := p.keyValues(n, "with")
	if err != nil {
		return nil, err
	}
	var parts []targetPart
	// Sorted, so that the first error is always the same.
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if v.Field == nil || v.KeepField {
			return nil, p.errorAt(v.node, "with: %s must be {field: ...}, the field of this record that holds {%s} of the key in both versions", name, name)
		}
		parts = append(parts, targetPart{name: name, field: v.Field, typ: v.fieldType, at: p.position(v.node)})
	}
	return parts, nil
}

// importedService lists the lens files of another service.
type importedService struct {
	files []string
	at    position
}

// importsSection reads the section imports.
func (p *lensParser) importsSection(n ast.Node) error {
	entries, ok := mapping(n)
	if !ok {
		return p.errorAt(n, "imports must be a mapping from services to lens files, relative to this one")
	}
	p.lens.imports = map[string]importedService{}
	for _, e := range entries {
		name, err := scalarText(e.Key)
		if err != nil {
			return p.errorAt(e.Key, "imports must be a mapping from services to lens files")
		}
		if _, twice := p.lens.imports[name]; twice {
			return p.errorAt(e.Key, "imports has %q twice", name)
		}
		s := importedService{at: p.position(e.Key)}
		// One file may stand alone, without a list.
		items := []ast.Node{e.Value}
		if seq, ok := e.Value.(*ast.SequenceNode); ok {
			items = seq.Values
		}
		for _, item := range items {
			file, err := scalarText(item)
			if err != nil || strings.TrimSpace(file) == "" {
				return p.errorAt(e.Value, "the lenses of %s must be a file or a list of files", name)
			}
			s.files = append(s.files, file)
		}
		p.lens.imports[name] = s
	}
	return nil
}
