package lens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Following is a lens used as a data update that follows references. Its methods are safe for
// concurrent use.
type Following struct {
	Revision string // digest of the update's effect
	Imports  []transform.Import

	ops []operation.Op
}

// HasReferences reports whether the lens follows the keys of any kind.
func (l *Lens) HasReferences() bool { return len(l.references) > 0 }

// Follow returns the lens as a data update of the records of one kind, in place. References to
// records of other services become keys of one version, or of both. Each value may be a key of
// either version before the update. So the update may run on a record any number of times, in any
// order with other updates and writes.
//
// The lens may contain only references to imported services, also within each. Follow refuses kinds
// of this service, because an upgrade changes their keys and the references together. It also
// refuses keys that can have the form of both versions.
func (l *Lens) Follow(kind string, keys transform.Keys) (*Following, error) {
	return l.follow(kind, keys, NewSet())
}

func (l *Lens) follow(kind string, keys transform.Keys, s *Set) (*Following, error) {
	refuse := func(format string, args ...any) (*Following, error) {
		return nil, fmt.Errorf("%s: %s", l.file, fmt.Sprintf(format, args...))
	}
	// A lens may omit its kinds. If it names one, it must be this kind.
	for _, named := range []string{l.kinds.from, l.kinds.to} {
		if named != "" && named != kind {
			return refuse("kinds names %s: a data update changes records of %s where they are", named, kind)
		}
	}
	if l.keys != nil {
		return refuse("key changes names: a data update changes records of %s where they are", kind)
	}
	imported, err := s.importsOf(l, []string{l.file})
	if err != nil {
		return nil, err
	}
	f := &Following{}
	// The revision covers the lens, the purpose and the keys of the referenced kinds.
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", l.digest, keys)
	targets := map[*target]*target{}
	for _, o := range l.references {
		if o.to.service == "" {
			return nil, o.to.at.errorf("%s is a kind of this service: an upgrade changes its keys and updates the references to them; a data update updates references to another service: name it with service and imports", o.to.kind)
		}
		// Copy the target: other updates and upgrades may use the same lens with other settings.
		to := *o.to
		to.asks = true
		if err := to.link(setKind{kind, kind, l}, imported[to.service]); err != nil {
			return nil, err
		}
		// The update decides by the form of a key whether it is old or new.
		if to.keys != nil && !to.keys.From.Disjoint(to.keys.To, to.keys) {
			return nil, to.at.errorf("a key of the old version of %s can look like one of the new version (%s, %s), so that a data update could not distinguish them", to.kind, to.keys.From, to.keys.To)
		}
		if keys == transform.BothKeys && o.both == nil {
			return nil, o.to.at.errorf("%s: to hold both keys, set both to the field that lists them", o)
		}
		if to.keys != nil {
			fmt.Fprintf(h, "%s %s\n", o.field, to.keys.Digested())
		}
		targets[o.to] = &to
	}
	if f.ops, err = f.following(kind, l.up.Ops, nil, keys, targets); err != nil {
		return refuse("%v", err)
	}
	f.Revision = "follow " + hex.EncodeToString(h.Sum(nil)[:8])
	return f, nil
}

// following converts the operations of a lens to those of a data update. within is the path of the
// enclosing items.
func (f *Following) following(kind string, ops []operation.Op, within edit.Path, keys transform.Keys, targets map[*target]*target) ([]operation.Op, error) {
	out := make([]operation.Op, 0, len(ops))
	for _, o := range ops {
		switch o := o.(type) {
		case *reference:
			r := *o
			r.to = targets[o.to]
			step := &follow{reference: &r, leave: keys}
			f.Imports = append(f.Imports, transform.Import{Service: r.to.service, Kind: r.to.kind, From: kind, Field: within.Join(r.field).String(), Keys: keys, Asks: r.to.looksUp(keys)})
			out = append(out, step)
		case *operation.Each:
			inner, err := f.following(kind, o.Run.Ops, within.Join(o.Field), keys, targets)
			if err != nil {
				return nil, err
			}
			// Copy the each: other users of the lens keep its operations.
			items := *o
			items.Run = operation.Program{Ops: inner}
			out = append(out, &items)
		default:
			return nil, fmt.Errorf("%s: a data update with references changes nothing else: move this operation to another data update", o)
		}
	}
	return out, nil
}

// Questions returns the lookups that a document's references need.
func (f *Following) Questions(doc bson.Raw) ([]transform.Question, error) {
	var asked []transform.Question
	_, err := f.run(doc, nil, &asked)
	return asked, err
}

// Change returns the document with its references updated. answers holds the answers to Questions.
// If nothing changes, it returns doc itself.
func (f *Following) Change(doc bson.Raw, answers transform.Answers) (bson.Raw, error) {
	return f.run(doc, answers, nil)
}

func (f *Following) run(doc bson.Raw, answers transform.Answers, asked *[]transform.Question) (bson.Raw, error) {
	e := edit.New()
	defer e.Release()
	// release clears them.
	e.Answers, e.Asked = answers, asked
	root, err := e.Open(doc)
	if err != nil {
		return nil, err
	}
	for _, o := range f.ops {
		if err := o.Apply(e, root); err != nil {
			return nil, operation.RecordError(o, err)
		}
	}
	// Return doc itself, so that the caller writes nothing.
	if !root.Dirty() {
		return doc, nil
	}
	const names = 256 // room for longer and additional keys
	return root.Encode(make([]byte, 0, len(doc)+names)), nil
}

// follow is a reference in a data update.
type follow struct {
	*reference
	leave transform.Keys
}

func (o *follow) Apply(e *edit.Editor, root *edit.Node) error {
	// The keys of this kind do not change.
	if o.to.keys == nil {
		return nil
	}
	var held []bson.RawValue
	n, i, err := e.Lookup(root, o.field)
	if err == nil && i >= 0 && n.Elems[i].Type != bson.TypeNull {
		held, err = o.settle(e, root, n, i)
	}
	if err != nil {
		return err
	}
	return o.hold(e, root, held)
}

// settle writes the keys of the wanted version into the field. It returns the old and the new key
// of each reference.
func (o *follow) settle(e *edit.Editor, root, n *edit.Node, i int) (held []bson.RawValue, err error) {
	var parts [keymap.MaxVariables]string
	if err := o.parts(e, root, parts[:]); err != nil {
		return nil, err
	}
	if !o.list {
		if held, err = o.key(e, n, i, parts[:], held); err != nil {
			return nil, edit.Refuse(o.field, "%w", err)
		}
		return held, nil
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeArray {
		return nil, edit.Refuse(o.field, "is of type %s, not a list of keys", edit.TypeName(el.Type))
	}
	items, err := e.OpenAt(el)
	if err != nil {
		return nil, err
	}
	for k := range items.Elems {
		if held, err = o.key(e, items, k, parts[:], held); err != nil {
			return nil, edit.Refuse(o.field.Join(edit.Path{strconv.AppendInt(nil, int64(k), 10)}), "%w", err)
		}
	}
	return held, nil
}

// key updates one key in its place, and appends its old and new key to held.
func (o *follow) key(e *edit.Editor, n *edit.Node, i int, parts []string, held []bson.RawValue) ([]bson.RawValue, error) {
	is := bson.RawValue{Type: n.Elems[i].Type, Value: n.Elems[i].Value()}
	// disjoint was checked: at most one of the two forms matches.
	for _, up := range []bool{true, false} {
		way := keymap.Way{Keys: o.to.keys, Up: up}
		var values [keymap.MaxVariables]string
		if way.Read(is, scalar.ReadExact, values[:]) != nil {
			continue
		}
		if o.leave != transform.BothKeys && up != (o.leave == transform.NewKeys) {
			return held, nil // the update has nothing to change
		}
		far, err := o.far(e, way, is, values[:], parts)
		switch {
		case err != nil:
			return nil, err
		case o.leave != transform.BothKeys:
			n.Set(i, far.Type, far.Value)
			return held, nil
		case up:
			return append(held, is, far), nil
		default:
			return append(held, far, is), nil
		}
	}
	// It is not a key of the kind, so it stays.
	if o.optional {
		return held, nil
	}
	return nil, fmt.Errorf("is %s (%s), which is not a key of %s in either version", edit.Show(is.Type, is.Value), edit.TypeName(is.Type), o.to.kind)
}

// far returns the key of the other version. values holds the values of the key's variables.
func (o *follow) far(e *edit.Editor, way keymap.Way, is bson.RawValue, values, parts []string) (bson.RawValue, error) {
	if o.to.open(way.Up) {
		return o.ask(e, way, is)
	}
	// Parts of the key in other fields must agree with the key.
	if err := o.fill(way, values, parts); err != nil {
		return bson.RawValue{}, err
	}
	typ, val := e.Id(func(dst []byte) (bson.Type, []byte) { return way.AppendTarget(dst, values) })
	return bson.RawValue{Type: typ, Value: val}, nil
}

// ask looks up the key of the other version. While questions are collected, it records the question
// and leaves the key.
func (o *follow) ask(e *edit.Editor, way keymap.Way, is bson.RawValue) (bson.RawValue, error) {
	key, err := record.KeyOf(is)
	if err != nil {
		return bson.RawValue{}, err
	}
	q := transform.Question{Service: o.to.service, Old: o.to.old, New: o.to.now, Key: key, Up: way.Up}
	// First pass: collect the question. The key stays until the answer is known.
	if e.Asked != nil {
		*e.Asked = append(*e.Asked, q)
		return is, nil
	}
	far, known := e.Answers[q]
	if !known {
		return bson.RawValue{}, fmt.Errorf("is %s: %s has no record of %s with this key that the other version has", edit.Show(is.Type, is.Value), o.to.service, o.to.kind)
	}
	// Use the types of the form, because a record.Key does not distinguish equal numbers.
	form, _ := way.Target()
	var buf [keymap.MaxVariables]string
	if err := form.Read(far.Value(), scalar.ReadKey, buf[:len(form.Variables)]); err != nil {
		return bson.RawValue{}, fmt.Errorf("became another key than the lens of %s makes: %w", o.to.kind, err)
	}
	return form.Value(buf[:len(form.Variables)]), nil
}

// hold writes the list of both keys of the field's references, or removes the list if there are
// none.
func (o *follow) hold(e *edit.Editor, root *edit.Node, held []bson.RawValue) error {
	if o.both == nil {
		return nil
	}
	n, i, err := e.Lookup(root, o.both)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		if i >= 0 {
			n.Remove(i)
		}
		return nil
	}
	start, list := bsoncore.AppendArrayStart(nil)
	for k, v := range held {
		list = bsoncore.AppendValueElement(list, strconv.Itoa(k), bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
	}
	if list, err = bsoncore.AppendArrayEnd(list, start); err != nil {
		return err
	}
	if i >= 0 {
		// Compare first: an unconditional set would rewrite every record.
		if el := &n.Elems[i]; el.Type != bson.TypeArray || !bytes.Equal(el.Value(), list) {
			n.Set(i, bson.TypeArray, list)
		}
		return nil
	}
	n.Append(edit.Elem{Type: bson.TypeArray, Name: o.both.Last(), Val: list})
	return nil
}

// looksUp reports whether an update to these keys needs lookups.
func (t *target) looksUp(keys transform.Keys) bool {
	return keys != transform.OldKeys && t.open(true) || keys != transform.NewKeys && t.open(false)
}

// open reports whether keys of one version (up: the new one) have a part that neither the other
// version's key nor a field next to the reference has.
func (t *target) open(up bool) bool {
	if t.keys == nil {
		return false
	}
	way := keymap.Way{Keys: t.keys, Up: up}
	return slices.ContainsFunc(t.keys.Variables, func(v keymap.Variable) bool {
		return way.OfContent(v) && !slices.ContainsFunc(t.with, func(p targetPart) bool { return p.name == v.Name })
	})
}

// rewrites returns the references to other services that an upgrade rewrites.
func (l *Lens) rewrites(from string) []transform.Import {
	var out []transform.Import
	for _, o := range l.references {
		if o.to.service != "" {
			out = append(out, transform.Import{Service: o.to.service, Kind: o.to.kind, From: from, Field: o.field.String(), Keys: transform.NewKeys})
		}
	}
	return out
}
