package apiversion

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// sameFields is the mapping, in one direction, between messages with equal fields. Fields in only
// exist in from alone.
type sameFields struct {
	from, to protoreflect.MessageDescriptor
	only     map[string]bool // paths in from without counterpart in to
}

var _ transform.Mapping = (*sameFields)(nil)

// newSameFields fails if a field of from differs in to and only does not list it. option is the
// name of the caller's option, for error texts.
func newSameFields(from, to protoreflect.MessageDescriptor, option string, only []string) (*sameFields, error) {
	m := &sameFields{from: from, to: to, only: map[string]bool{}}
	for _, p := range only {
		switch {
		case leaf(from, p) == nil:
			return nil, fmt.Errorf("resource %s: %s: it has no field %s below messages", from.FullName(), option, p)
		case m.only[p]:
			return nil, fmt.Errorf("resource %s: %s names %s twice", from.FullName(), option, p)
		}
		m.only[p] = true
	}
	if err := m.complete(from, to, "", nil); err != nil {
		return nil, fmt.Errorf("resource %s: %w: name it with %s", from.FullName(), err, option)
	}
	return m, nil
}

// complete checks that every field below a message has an equal field in the other message.
func (m *sameFields) complete(from, to protoreflect.MessageDescriptor, prefix string, within []protoreflect.FullName) error {
	if slices.Contains(within, from.FullName()) {
		return nil // recursion: the outer call already compares this message
	}
	within = append(within, from.FullName())
	for i := range from.Fields().Len() {
		fd := from.Fields().Get(i)
		path := prefix + string(fd.Name())
		if m.only[path] {
			continue
		}
		other := to.Fields().ByName(fd.Name())
		if other == nil {
			return fmt.Errorf("%s has no counterpart in %s", path, to.FullName())
		}
		if err := m.compatible(fd, other, path, within); err != nil {
			return err
		}
	}
	return nil
}

// compatible checks that a value means the same in both fields.
func (m *sameFields) compatible(a, b protoreflect.FieldDescriptor, path string, within []protoreflect.FullName) error {
	switch {
	// Presence counts too: without it, an unset value and a zero value become equal.
	case a.Kind() != b.Kind() || a.Cardinality() != b.Cardinality() || a.IsMap() != b.IsMap() || a.HasPresence() != b.HasPresence():
		return fmt.Errorf("%s is of another type in %s", path, b.ContainingMessage().FullName())
	case a.IsMap() && a.MapKey().Kind() != b.MapKey().Kind():
		return fmt.Errorf("the keys of %s are of another type in %s", path, b.ContainingMessage().FullName())
	case a.IsMap():
		return m.compatible(a.MapValue(), b.MapValue(), path+".*", within)
	case a.Message() == nil || a.Message() == b.Message():
		return nil
	}
	return m.complete(a.Message(), b.Message(), path+".", within)
}

// sameType checks that copyField can copy one field to another.
func sameType(a, b protoreflect.FieldDescriptor, path string) error {
	return new(sameFields).compatible(a, b, path, nil)
}

// leaf returns the field at a path. It returns nil if there is none, or if the path leads through a
// list or map.
func leaf(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	var fd protoreflect.FieldDescriptor
	for part := range strings.SplitSeq(path, ".") {
		if d == nil {
			return nil
		}
		if fd = d.Fields().ByName(protoreflect.Name(part)); fd == nil {
			return nil
		}
		d = nil
		if !fd.IsList() && !fd.IsMap() {
			d = fd.Message()
		}
	}
	return fd
}

// Name returns the name unchanged.
func (m *sameFields) Name(name string) (string, error) { return name, nil }

// Parent returns the parent unchanged.
func (m *sameFields) Parent(parent string) (string, error) { return parent, nil }

// check returns an error for a field without counterpart, or below one.
func (m *sameFields) check(path string) error {
	// A field below a missing message is missing too, so check each ancestor.
	for p := path; ; {
		if m.only[p] {
			return &transform.MappingError{Field: path, Reason: "has no counterpart in " + string(m.to.FullName())}
		}
		at := strings.LastIndexByte(p, '.')
		if at < 0 {
			return nil
		}
		p = p[:at]
	}
}

// differs reports whether a message field contains fields without counterpart.
func (m *sameFields) differs(path string) bool {
	for p := range m.only {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// Field maps a path of a mask. A message that differs maps to the fields that both versions have.
func (m *sameFields) Field(path string) ([]string, error) {
	if err := m.check(path); err != nil {
		return nil, err
	}
	// Naming the whole message would also cover fields that the client cannot see.
	if m.differs(path) {
		return m.common(path)
	}
	return []string{path}, nil
}

// common returns the fields of a message that both versions have. If these are all fields of the
// other version, it returns the message itself. Only then can a mask also clear the whole message.
func (m *sameFields) common(path string) ([]string, error) {
	var out []string
	whole := 0
	fields := leaf(m.from, path).Message().Fields()
	for i := range fields.Len() {
		sub := path + "." + string(fields.Get(i).Name())
		if m.check(sub) != nil {
			continue
		}
		paths, err := m.Field(sub)
		if err != nil {
			return nil, err
		}
		if len(paths) == 1 && paths[0] == sub {
			whole++
		}
		out = append(out, paths...)
	}
	switch {
	case len(out) == 0:
		return nil, &transform.MappingError{Field: path, Reason: "has nothing in common with that of " + string(m.to.FullName())}
	case whole == leaf(m.to, path).Message().Fields().Len():
		return []string{path}, nil
	}
	return out, nil
}

// Compare maps a condition. It returns an error for fields that differ.
func (m *sameFields) Compare(c transform.Condition) ([]transform.Condition, error) {
	if err := m.check(c.Path); err != nil {
		return nil, err
	}
	if m.differs(c.Path) {
		return nil, &transform.MappingError{Field: c.Path, Reason: "has other fields in the other version: compare them one by one"}
	}
	return []transform.Condition{c}, nil
}

// Order maps a path to sort by. It returns an error for fields that differ.
func (m *sameFields) Order(path string) (string, error) {
	if err := m.check(path); err != nil {
		return "", err
	}
	if m.differs(path) {
		return "", &transform.MappingError{Field: path, Reason: "has other fields in the other version"}
	}
	return path, nil
}
