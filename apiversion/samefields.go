package apiversion

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// sameFields maps requests, in one direction, between messages that have the same fields,
// but for those that one of them alone has.
type sameFields struct {
	from, to protoreflect.MessageDescriptor
	only     map[string]bool // the paths of from that to does not have
}

var _ transform.Mapping = (*sameFields)(nil)

// newSameFields fails if a field of from is not the same in to, and only does not name it.
// option is what only was given with.
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

// complete checks that every field below is the same on the other side.
func (m *sameFields) complete(from, to protoreflect.MessageDescriptor, prefix string, within []protoreflect.FullName) error {
	if slices.Contains(within, from.FullName()) {
		return nil // recursive messages are the same all the way down
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

// compatible checks that a field's value means the same in another field.
func (m *sameFields) compatible(a, b protoreflect.FieldDescriptor, path string, within []protoreflect.FullName) error {
	switch {
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

// sameType checks that the value of a field can be copied to another as it is.
func sameType(a, b protoreflect.FieldDescriptor, path string) error {
	return new(sameFields).compatible(a, b, path, nil)
}

// leaf finds a field below messages, nil if there is none.
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

// Name leaves the name of a record as it is.
func (m *sameFields) Name(name string) (string, error) { return name, nil }

// Parent leaves the parent of records as it is.
func (m *sameFields) Parent(parent string) (string, error) { return parent, nil }

// check refuses a field that the other side does not have.
func (m *sameFields) check(path string) error {
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

// differs reports whether a field is a message with fields that the other side does not have.
func (m *sameFields) differs(path string) bool {
	for p := range m.only {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// Field maps a path of a mask.
func (m *sameFields) Field(path string) ([]string, error) {
	if err := m.check(path); err != nil {
		return nil, err
	}
	if m.differs(path) {
		return m.common(path)
	}
	return []string{path}, nil
}

// common are the fields of a message that both sides have. Where they are all that the
// other side has they are the message itself, for a mask can then also name that there is
// none.
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

// Compare maps a comparison.
func (m *sameFields) Compare(c transform.Condition) ([]transform.Condition, error) {
	if err := m.check(c.Path); err != nil {
		return nil, err
	}
	if m.differs(c.Path) {
		return nil, &transform.MappingError{Field: c.Path, Reason: "has other fields in the other version: compare them one by one"}
	}
	return []transform.Condition{c}, nil
}

// Order maps a field to sort by.
func (m *sameFields) Order(path string) (string, error) {
	if err := m.check(path); err != nil {
		return "", err
	}
	if m.differs(path) {
		return "", &transform.MappingError{Field: path, Reason: "has other fields in the other version"}
	}
	return path, nil
}
