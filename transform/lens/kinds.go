package lens

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// kindNames are the kinds of a lens on both sides, where it names them.
type kindNames struct{ from, to string }

// kindsSection reads the section of that name.
func (p *lensParser) kindsSection(n ast.Node) error {
	f, err := p.fields(n, "kinds", []string{"from", "to"}, nil)
	if err != nil {
		return err
	}
	if p.lens.kinds.from, err = p.kind(f["from"], "from"); err != nil {
		return err
	}
	p.lens.kinds.to, err = p.kind(f["to"], "to")
	return err
}

// kind reads the name of a kind.
func (p *lensParser) kind(n ast.Node, key string) (string, error) {
	name, err := scalarText(n)
	if err != nil || name == "" {
		return "", p.errorAt(n, "%s must be the name of a kind", key)
	}
	return name, nil
}

// byContent reports whether any key does not follow from keys alone, or any child's key
// does not name its parent.
func (l *Lens) byContent() bool {
	if l.keys != nil && (l.keys.byContent || l.keys.byContentDown) {
		return true
	}
	for _, f := range l.fans {
		if f.prefix == 0 {
			return true
		}
	}
	return false
}

// members are the kinds of a lens as groups: a group is named by the key that its record
// has on the old side.
type members struct {
	*Lens
	from, to string
}

func (m members) kinds() (old, now []transform.GroupedKind) {
	kind := func(name string) transform.GroupedKind {
		return transform.GroupedKind{KindSpec: record.KindSpec{Name: name}}
	}
	a, b := kind(m.from), kind(m.to)
	content := m.byContent()
	switch {
	case m.keys == nil:
	case content:
		b.Content = func(r record.Record) (string, error) {
			key, err := keyWay{m.Lens.keys, false}.keyOf(r.Key, r.Doc)
			return string(key), err
		}
	default:
		a.Single, b.Single = true, true
		a.GroupOf = func(k record.Key) (string, error) { _, err := m.mapKey(k, true); return string(k), err }
		a.Select = func(group string) record.Selector { return record.Selector{Key: record.Key(group)} }
		b.GroupOf = func(k record.Key) (string, error) { old, err := m.mapKey(k, false); return string(old), err }
		b.Select = func(group string) record.Selector { return record.Selector{Key: m.newKey(group)} }
	}
	old, now = append(old, a), append(now, b)
	for _, f := range m.fans {
		k := kind(f.kind)
		if content {
			k.Content = func(r record.Record) (string, error) { return m.groupByContent(f, r) }
		} else {
			k.Single = f.prefix == len(f.key.segments)
			k.GroupOf = func(key record.Key) (string, error) { return m.groupByName(f, key) }
			k.Select = func(group string) record.Selector { return m.selectChildren(f, group) }
		}
		if f.gather {
			old = append(old, k)
		} else {
			now = append(now, k)
		}
	}
	return old, now
}

// mapKey maps the key of a record where it follows from the key alone.
func (m members) mapKey(k record.Key, up bool) (record.Key, error) {
	return keyWay{m.Lens.keys, up}.keyOf(k, nil)
}

// newKey is the key that the record of a group has on the new side. No group that was
// made of a key is without one.
func (m members) newKey(group string) record.Key {
	if m.Lens.keys == nil {
		return record.Key(group)
	}
	k, err := m.mapKey(record.Key(group), true)
	if err != nil {
		return record.Key(group)
	}
	return k
}

// keyOf maps the key of a record. doc holds what does not follow from the key.
func (k keyWay) keyOf(key record.Key, doc bson.Raw) (record.Key, error) {
	name, ok := key.Name()
	if !ok {
		src, _ := k.source()
		return "", fmt.Errorf("the _id is %s, not a string of the form %s", key, src)
	}
	var values [maxVariables]string
	if err := k.read(name, values[:]); err != nil {
		return "", err
	}
	if k.needsContent() {
		if err := k.readFields(doc, values[:]); err != nil {
			return "", err
		}
	}
	return stringKey(func(dst []byte) []byte { return k.appendTarget(dst, values[:]) }), nil
}

// readFields fills in the variables of the target's pattern that fields of a record hold.
func (k keyWay) readFields(doc bson.Raw, values []string) error {
	p, at := k.target()
	for i := range p.variables {
		v := &k.variables[at[i]]
		if v.field == nil {
			continue
		}
		raw, _ := lookupRaw(doc, v.field)
		text, ok := raw.StringValueOK()
		if !ok {
			return fmt.Errorf("the record has no string %s, which its name in the other version holds", v.field)
		}
		if err := checkValue(v.name, text); err != nil {
			return err
		}
		values[at[i]] = text
	}
	return nil
}

// groupOfParent names the group of the record that has the children.
func (m members) groupOfParent(f *fan, key record.Key) (string, error) {
	if f.gather || m.Lens.keys == nil {
		return string(key), nil
	}
	old, err := m.mapKey(key, false)
	return string(old), err
}

func (m members) groupByName(f *fan, key record.Key) (string, error) {
	parent, err := f.parentOf(key)
	if err != nil {
		return "", err
	}
	return m.groupOfParent(f, parent)
}

func (m members) groupByContent(f *fan, r record.Record) (string, error) {
	if f.parent == nil {
		return m.groupByName(f, r.Key)
	}
	id, ok := lookupRaw(r.Doc, path{f.parent})
	if !ok {
		return "", fmt.Errorf("it has no %s, which identifies the record that it belongs to", f.parent)
	}
	parent, err := record.KeyOf(id)
	if err != nil {
		return "", err
	}
	return m.groupOfParent(f, parent)
}

// parentOf reads the parent's key out of a child's.
func (f *fan) parentOf(key record.Key) (record.Key, error) {
	name, ok := key.Name()
	if !ok {
		return "", fmt.Errorf("the _id is %s, not a string of the form %s", key, f.key)
	}
	var values, own [maxVariables]string
	if err := f.key.match(name, values[:len(f.parts)]); err != nil {
		return "", err
	}
	for i, part := range f.parts {
		switch part.source {
		case partKey:
			return stringKey(func(dst []byte) []byte { return append(dst, values[i]...) }), nil
		case partVariable:
			own[part.index] = values[i]
		}
	}
	for i, c := range f.constants {
		if c != "" {
			own[i] = c
		}
	}
	p := f.parentPattern
	return stringKey(func(dst []byte) []byte { return p.appendName(dst, own[:len(p.variables)], len(p.segments)) }), nil
}

// selectChildren finds the children of a group. Those of another whose parent's name
// begins alike are sorted out by GroupOf.
func (m members) selectChildren(f *fan, group string) record.Selector {
	parent := record.Key(group)
	if !f.gather {
		parent = m.newKey(group)
	}
	name, ok := parent.Name()
	var values [maxVariables]string
	if !ok || f.parentValues(name, values[:]) != nil {
		// A record whose name is no part of a key has no children.
		return record.Selector{Key: parent}
	}
	prefix := f.key.appendName(nil, values[:len(f.parts)], f.prefix)
	if f.prefix == len(f.key.segments) {
		return record.Selector{Key: record.StringKey(string(prefix))}
	}
	prefix = append(append(prefix, '/'), f.key.segments[f.prefix].before...)
	return record.Selector{Key: record.StringKey(string(prefix)), Prefix: true}
}
