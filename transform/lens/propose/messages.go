package propose

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message is a resource of an API in both versions.
type Message struct {
	Old, New protoreflect.MessageDescriptor
	// OldPattern and NewPattern are the patterns of the resource's names, such as
	// projects/{project}/tasks/{task}. "" means that the protos do not state one.
	OldPattern, NewPattern string
}

// Kind returns a name for the kind of the resource: its collection, or the name of the message.
func (m Message) Kind() string {
	parts := strings.Split(m.OldPattern, "/")
	if len(parts) > 1 {
		return parts[len(parts)-2]
	}
	return strings.ToLower(string(m.Old.Name())) + "s"
}

// Messages drafts the lens between the documents of a message in two versions, as package protodoc
// encodes them. A field with the same number is the same field: another name is a rename, another
// type a conversion. Comments mark each decision that the protos leave open. Equal messages give
// equal drafts. from and to name the kinds.
//
// The returned Sparse fields of the old version have a zero value that the lens cannot convert:
// the service must leave them out of its documents (resource.Config.Sparse).
func Messages(from, to string, m Message) (draft *Draft, sparse []string, err error) {
	d := &fieldDrafter{}
	head := ""
	if m.OldPattern != m.NewPattern && m.OldPattern != "" && m.NewPattern != "" {
		head = d.key(m)
	}
	d.nested("", m.Old, m.New)
	text, _, err := d.text(from, to, head)
	if err != nil {
		return nil, nil, err
	}
	title := fmt.Sprintf("# Drafted from %s and %s.\n", m.Old.FullName(), m.New.FullName())
	return &Draft{Text: []byte(title + text), Unsure: d.unsure}, d.sparse, nil
}

// fieldDrafter drafts the operations for fields of messages.
type fieldDrafter struct {
	drafter
	sparse []string
	within []string // names of the messages around, to notice recursion
}

// key returns the part of a lens that changes the keys of its records.
func (d *fieldDrafter) key(m Message) string {
	old, now := variables(m.OldPattern), variables(m.NewPattern)
	text := fmt.Sprintf("key:\n  from: %s\n  to: %s\n", literal(m.OldPattern), literal(m.NewPattern))
	only := func(key string, here, there []string) {
		var lines []string
		for _, v := range here {
			if !slices.Contains(there, v) {
				lines = append(lines, v+": CHANGE-ME")
			}
		}
		if len(lines) > 0 {
			d.unsure++
			text += fmt.Sprintf("  %s: {%s} # a constant, or {field: ...}\n", key, strings.Join(lines, ", "))
		}
	}
	only("with", now, old)
	only("without", old, now)
	// The documents hold their name, which changes with the key.
	if m.Old.Fields().ByName("name") != nil && m.New.Fields().ByName("name") != nil {
		d.op("reference: {field: name, kind: self}", "")
	}
	return text
}

// variables returns the names of the variables of a pattern.
func variables(pattern string) (out []string) {
	for part := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, strings.TrimSuffix(name, "}"))
		}
	}
	return out
}

// message drafts the operations for the fields of an object at a path. "" is the record.
func (d *fieldDrafter) message(path string, old, now protoreflect.MessageDescriptor) {
	pairs, gone, come := d.match(path, old, now)
	// Renames come first: other operations then use the names of the new version.
	for _, p := range pairs {
		if p[0].Name() != p[1].Name() {
			d.op(fmt.Sprintf("rename: {from: %s, to: %s}", quote(join(path, p[0])), quote(join(path, p[1]))), "")
		}
	}
	for _, p := range pairs {
		d.field(join(path, p[1]), p[0], p[1])
	}
	for _, f := range gone {
		op := fmt.Sprintf("remove: {field: %s}", quote(join(path, f)))
		// A document of the old version has every field without presence.
		if value, ok := zero(f); ok {
			op = fmt.Sprintf("remove: {field: %s, default: %s}", quote(join(path, f)), value)
		}
		d.op(op, "")
	}
	for _, f := range come {
		value, ok := zero(f)
		if !ok {
			value = "null" // unset
		}
		d.op(fmt.Sprintf("add: {field: %s, default: %s}", quote(join(path, f)), value), "")
	}
}

// match pairs the fields of two messages: those with the same name and number, then those with the
// same number, then those with the same name. It returns the fields without a counterpart, too.
func (d *fieldDrafter) match(path string, old, now protoreflect.MessageDescriptor) (pairs [][2]protoreflect.FieldDescriptor, gone, come []protoreflect.FieldDescriptor) {
	taken := map[protoreflect.Name]bool{} // fields of the new version
	found := map[protoreflect.Name]protoreflect.FieldDescriptor{}
	each := func(by func(f protoreflect.FieldDescriptor) protoreflect.FieldDescriptor) {
		for i := range old.Fields().Len() {
			f := old.Fields().Get(i)
			if found[f.Name()] != nil {
				continue
			}
			if g := by(f); g != nil && !taken[g.Name()] {
				found[f.Name()], taken[g.Name()] = g, true
			}
		}
	}
	number := func(f protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
		return now.Fields().ByNumber(f.Number())
	}
	name := func(f protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
		return now.Fields().ByName(f.Name())
	}
	each(func(f protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
		if g := number(f); g != nil && g.Name() == f.Name() {
			return g
		}
		return nil
	})
	// A name that moved to another number says more than the number that it left.
	each(func(f protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
		g, h := name(f), number(f)
		if g == nil || taken[g.Name()] {
			return nil
		}
		if h != nil {
			d.remark(fmt.Sprintf("%s: number %d is now %s, and the name has number %d: this draft follows the name", join(path, f), f.Number(), h.Name(), g.Number()))
		} else {
			d.remark(fmt.Sprintf("%s: it has number %d now, so clients of one version do not read it from messages of the other", join(path, f), g.Number()))
		}
		return g
	})
	each(number)
	for i := range old.Fields().Len() {
		f := old.Fields().Get(i)
		if g := found[f.Name()]; g != nil {
			pairs = append(pairs, [2]protoreflect.FieldDescriptor{f, g})
		} else {
			gone = append(gone, f)
		}
	}
	for i := range now.Fields().Len() {
		if f := now.Fields().Get(i); !taken[f.Name()] {
			come = append(come, f)
		}
	}
	return pairs, gone, come
}

func join(path string, f protoreflect.FieldDescriptor) string {
	if path == "" {
		return string(f.Name())
	}
	return path + "." + string(f.Name())
}
