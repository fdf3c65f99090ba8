package lens

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// kindNames holds the kinds of a lens on both sides, empty if it does not name them.
type kindNames struct{ from, to string }

// kindsSection reads the section kinds.
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

// byContent reports whether some key does not follow from keys alone, or some child's key does not
// name its parent.
func (l *Lens) byContent() bool {
	if l.keys != nil && (l.keys.ByContent || l.keys.ByContentDown) {
		return true
	}
	for _, f := range l.fans {
		if f.ByContent() {
			return true
		}
	}
	return false
}

// members groups the kinds of a lens. A group has the name of its record's key on the old side.
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
	// With children that go by content, the record's group must be named by its content too.
	case content:
		b.Content = func(r record.Record) (string, error) {
			key, err := keymap.Way{Keys: m.Lens.keys, Up: false}.KeyOf(r.Key, r.Doc)
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
		k := kind(f.Kind)
		if content {
			k.Content = func(r record.Record) (string, error) { return m.groupByContent(f, r) }
		} else {
			k.Single = f.Whole
			k.GroupOf = func(key record.Key) (string, error) { return m.groupByName(f, key) }
			k.Select = func(group string) record.Selector { return m.selectChildren(f, group) }
		}
		if f.Gather {
			old = append(old, k)
		} else {
			now = append(now, k)
		}
	}
	return old, now
}

// mapKey maps a record's key that follows from the key alone.
func (m members) mapKey(k record.Key, up bool) (record.Key, error) {
	return keymap.Way{Keys: m.Lens.keys, Up: up}.KeyOf(k, nil)
}

// newKey returns the key of a group's record on the new side. A group that was named by a key
// always has one.
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

// groupOfParent returns the group of a parent record.
func (m members) groupOfParent(f *fanout.Fan, key record.Key) (string, error) {
	if f.Gather || m.Lens.keys == nil {
		return string(key), nil
	}
	old, err := m.mapKey(key, false)
	return string(old), err
}

func (m members) groupByName(f *fanout.Fan, key record.Key) (string, error) {
	parent, err := f.ParentOf(key)
	if err != nil {
		return "", err
	}
	return m.groupOfParent(f, parent)
}

func (m members) groupByContent(f *fanout.Fan, r record.Record) (string, error) {
	if f.Parent == nil {
		return m.groupByName(f, r.Key)
	}
	id, ok := edit.LookupRaw(r.Doc, edit.Path{f.Parent})
	if !ok {
		return "", fmt.Errorf("it has no %s, which identifies its parent record", f.Parent)
	}
	// The field holds the parent's _id. Group by the key that it stands for.
	parent, err := record.KeyOf(id)
	if err != nil {
		return "", err
	}
	return m.groupOfParent(f, parent)
}

// selectChildren returns a selector for the children of a group. A prefix may also match children
// of other parents; GroupOf excludes them.
func (m members) selectChildren(f *fanout.Fan, group string) record.Selector {
	parent := record.Key(group)
	// The children of a fanOut have the parent's new key in theirs.
	if !f.Gather {
		parent = m.newKey(group)
	}
	none := record.Selector{Key: parent}
	var values [keymap.MaxVariables]string
	if parent == "" || f.ParentValues(parent.Value(), scalar.ReadKey, values[:]) != nil {
		// The _id cannot be part of a key, so the record has no children.
		return none
	}
	// A parent has at most one child, so its key is known completely.
	if f.Whole {
		key, err := f.Key.Key(values[:len(f.Parts)])
		if err != nil {
			return none
		}
		return record.Selector{Key: key}
	}
	p := f.Key.Pattern()
	prefix := p.AppendName(nil, values[:len(f.Parts)], f.Prefix)
	// Include the fixed start of the next segment, to match fewer records of other parents.
	prefix = append(append(prefix, '/'), p.Segments[f.Prefix].Before...)
	return record.Selector{Key: record.StringKey(string(prefix)), Prefix: true}
}
