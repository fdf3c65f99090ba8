package listing

import (
	"dbcontroller.dev/apiversion/protodoc"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth limits the parts of a path.
const maxDepth = 64

// SplitPath returns the parts of a dotted path. A part in backquotes may contain dots, as in
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

// JoinPath returns the path of parts. It is the inverse of SplitPath.
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

// shape tells whether the field at the end of a path is a single value, a list or a map.
type shape int

const (
	single shape = iota
	list
	entries
)

// field is a path that was resolved against a descriptor.
type field struct {
	steps []step
	// fd describes the values at the end. For a map entry it is the map's value field.
	fd    protoreflect.FieldDescriptor
	shape shape
	many  bool // the path goes through a list or all entries of a map
	// others returns the other names of a resource name in this field. Nil: there are none.
	others func(name string) []string
}

// step is one step along a path: to a field, or to an entry or the items of the previous step. It
// holds names instead of descriptors, so that it works on messages of any implementation.
type step struct {
	name protoreflect.Name // of a field; empty for entries and items
	key  string            // of an entry
	all  bool              // all items or entries
}

// wildcard selects every item of a list or entry of a map.
const wildcard = "*"

// resolve finds a path below a message type.
func resolve(d protoreflect.MessageDescriptor, parts []string) (field, error) {
	f := field{}
	here := d // nil if nothing can follow
	for i := 0; i < len(parts); i++ {
		// Errors show the path up to the wrong part.
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
			// A path may go through a list without naming the wildcard.
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

// values calls yield for each value at the end of the path, until yield returns false. It does not
// call yield if the path leads through an absent value.
func (f field) values(m protoreflect.Message, yield func(protoreflect.Value) bool) {
	walk(m, f.steps, yield)
}

// walk follows steps from m. It returns false after yield returned false.
func walk(m protoreflect.Message, steps []step, yield func(protoreflect.Value) bool) bool {
	fd := m.Descriptor().Fields().ByName(steps[0].name)
	if fd == nil || fd.HasPresence() && !m.Has(fd) {
		return true
	}
	v, rest := m.Get(fd), steps[1:]
	// item describes the values that rest starts from: for a map, its value field.
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
