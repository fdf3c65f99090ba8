package listing

import (
	"dbcontroller.dev/apiversion/protodoc"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth bounds the parts of a path.
const maxDepth = 64

// SplitPath returns the parts of a dotted path. A part in backquotes holds dots:
// labels.`a.b`.
func SplitPath(path string) ([]string, error) {
	var parts []string
	for rest := path; ; {
		var part string
		if quoted, ok := strings.CutPrefix(rest, "`"); ok {
			part, rest, ok = strings.Cut(quoted, "`")
			if !ok || part == "" || rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("path %q has a backquote that is not closed", path)
			}
		} else if end := strings.IndexByte(rest, '.'); end >= 0 {
			part, rest = rest[:end], rest[end:]
		} else {
			part, rest = rest, ""
		}
		if part == "" {
			return nil, fmt.Errorf("path %q has an empty part", path)
		}
		if parts = append(parts, part); len(parts) > maxDepth {
			return nil, fmt.Errorf("path has more than %d parts", maxDepth)
		}
		if rest == "" {
			return parts, nil
		}
		rest = rest[1:]
	}
}

// JoinPath is the inverse of SplitPath.
func JoinPath(parts []string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('.')
		}
		if strings.ContainsRune(p, '.') {
			b.WriteString("`" + p + "`")
		} else {
			b.WriteString(p)
		}
	}
	return b.String()
}

// shape is what a field holds at the end of a path.
type shape int

const (
	single shape = iota
	list
	entries
)

// field is a path that was found in a descriptor.
type field struct {
	steps []step
	// fd describes the values at the end: of an entry, the map's value.
	fd    protoreflect.FieldDescriptor
	shape shape
	many  bool // the path goes through lists or all entries of a map
	// others are the other names of a name that the field holds; nil: it has none.
	others func(name string) []string
}

// step goes from a message to a field, or to an entry or the items of what the step
// before led to. It holds names, not descriptors, so that it works on messages of any
// implementation.
type step struct {
	name protoreflect.Name // of a field; empty for the others
	key  string            // of an entry
	all  bool              // all items or entries
}

// wildcard stands for any item of a list or entry of a map.
const wildcard = "*"

// resolve finds a path below a message.
func resolve(d protoreflect.MessageDescriptor, parts []string) (field, error) {
	f := field{}
	here := d // nil where nothing can be below
	for i := 0; i < len(parts); i++ {
		upTo := JoinPath(parts[:i+1])
		if here == nil {
			return field{}, fmt.Errorf("%s is not a message: it has no %s", JoinPath(parts[:i]), parts[i])
		}
		fd := here.Fields().ByName(protoreflect.Name(parts[i]))
		if fd == nil {
			return field{}, fmt.Errorf("%s has no field %s", here.FullName(), upTo)
		}
		f.steps = append(f.steps, step{name: fd.Name()})
		f.fd, f.shape, here = fd, single, fd.Message()
		more := i+1 < len(parts)
		switch {
		case fd.IsMap() && !more:
			f.shape, here = entries, nil
		case fd.IsMap():
			i++
			if parts[i] == wildcard {
				f.steps, f.many = append(f.steps, step{all: true}), true
			} else {
				if _, ok := protodoc.MapKey(parts[i], fd.MapKey()); !ok {
					return field{}, fmt.Errorf("%s: the keys of %s are of type %s", JoinPath(parts[:i+1]), upTo, fd.MapKey().Kind())
				}
				f.steps = append(f.steps, step{key: parts[i]})
			}
			f.fd, here = fd.MapValue(), fd.MapValue().Message()
		case fd.IsList() && !more:
			f.shape, here = list, nil
		case fd.IsList():
			f.steps, f.many = append(f.steps, step{all: true}), true
			if parts[i+1] == wildcard {
				i++
			}
		}
	}
	if len(parts) == 0 {
		return field{}, fmt.Errorf("the path is empty")
	}
	return f, nil
}

// values calls yield for what stands at the end of the path, until it returns false.
// Nothing is called where the path leads through something that is not there.
func (f field) values(m protoreflect.Message, yield func(protoreflect.Value) bool) {
	walk(m, f.steps, yield)
}

func walk(m protoreflect.Message, steps []step, yield func(protoreflect.Value) bool) bool {
	fd := m.Descriptor().Fields().ByName(steps[0].name)
	if fd == nil || fd.HasPresence() && !m.Has(fd) {
		return true
	}
	v, rest := m.Get(fd), steps[1:]
	item := fd
	below := func(v protoreflect.Value) bool {
		switch {
		case len(rest) == 0:
			return yield(v)
		case item.Message() == nil:
			return true
		}
		return walk(v.Message(), rest, yield)
	}
	if len(rest) == 0 || rest[0].name != "" {
		return below(v)
	}
	through := rest[0]
	rest = rest[1:]
	switch {
	case fd.IsMap():
		item = fd.MapValue()
		if !through.all {
			k, ok := protodoc.MapKey(through.key, fd.MapKey())
			if !ok || !v.Map().Has(k) {
				return true
			}
			return below(v.Map().Get(k))
		}
		more := true
		v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			more = below(v)
			return more
		})
		return more
	case fd.IsList():
		for i := range v.List().Len() {
			if !below(v.List().Get(i)) {
				return false
			}
		}
	}
	return true
}
