package listing

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/protodoc"
)

// node is a mask as a tree of path parts. A node without children selects everything below it.
type node map[string]node

// maxPaths limits the paths of a mask, since List parses it again for each message.
const maxPaths = 1000

// tree checks the paths of a mask and returns them as a tree. It returns nil for a mask with "*".
func tree(mask *fieldmaskpb.FieldMask, d protoreflect.MessageDescriptor, forUpdate bool) (node, error) {
	root := node{}
	if n := len(mask.GetPaths()); n > maxPaths {
		return nil, fmt.Errorf("has %d paths, at most %d are allowed", n, maxPaths)
	}
	for _, path := range mask.GetPaths() {
		if path == wildcard {
			return nil, nil
		}
		parts, err := SplitPath(path)
		if err != nil {
			return nil, err
		}
		f, err := resolve(d, parts)
		if err != nil {
			return nil, err
		}
		// Items of a list have no identity, so one of them cannot be addressed.
		if forUpdate && f.many {
			return nil, fmt.Errorf("%s leads into the items of a list: it can only be replaced whole", path)
		}
		root.add(f.masked())
	}
	return root, nil
}

// masked returns the parts of a path. A step into all items is the wildcard.
func (f field) masked() []string {
	parts := make([]string, len(f.steps))
	for i, s := range f.steps {
		switch {
		case s.all:
			parts[i] = wildcard
		case s.name != "":
			parts[i] = string(s.name)
		default:
			parts[i] = s.key
		}
	}
	return parts
}

// add adds a path to the tree. It replaces the paths below it.
func (n node) add(parts []string) {
	for i, p := range parts {
		child, ok := n[p]
		switch {
		case i == len(parts)-1:
			n[p] = node{}
			return
		case ok && len(child) == 0:
			return // a shorter path already selects this
		case !ok:
			child = node{}
			n[p] = child
		}
		n = child
	}
}

// below returns the mask of an entry. ok is false if the mask does not select it.
func (n node) below(key string) (child node, ok bool) {
	own, named := n[key]
	every, all := n[wildcard]
	switch {
	case !all:
		return own, named
	case !named:
		return every, true
	}
	// Both kinds of paths select parts of the entry.
	return union(own, every), true
}

// union returns a mask that selects what either mask selects.
func union(a, b node) node {
	if len(a) == 0 || len(b) == 0 {
		return node{}
	}
	out := maps.Clone(a)
	for part, child := range b {
		if has, ok := out[part]; ok {
			child = union(has, child)
		}
		out[part] = child
	}
	return out
}

// CheckMask checks the paths of a read mask against a message type. It returns InvalidArgument with
// the wrong path.
func CheckMask(mask *fieldmaskpb.FieldMask, d protoreflect.MessageDescriptor) error {
	if _, err := tree(mask, d, false); err != nil {
		return Invalid("read_mask", "%s", err)
	}
	return nil
}

// ApplyMask clears all fields of msg that a read mask does not select. A mask that is nil, empty or
// "*" selects everything. Paths lead through messages, map entries (labels.x) and all items of
// lists. It returns InvalidArgument for a wrong path, and then leaves msg unchanged.
func ApplyMask(msg proto.Message, mask *fieldmaskpb.FieldMask) error {
	if len(mask.GetPaths()) == 0 {
		return nil
	}
	root, err := tree(mask, msg.ProtoReflect().Descriptor(), false)
	if err != nil {
		return Invalid("read_mask", "%s", err)
	}
	root.prune(msg.ProtoReflect())
	return nil
}

// prune clears all fields that n does not select.
func (n node) prune(m protoreflect.Message) {
	if len(n) == 0 {
		return
	}
	// No path can select an unknown field.
	m.SetUnknown(nil)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		child, ok := n[string(fd.Name())]
		switch {
		case !ok:
			m.Clear(fd)
		case len(child) == 0:
		case fd.IsMap():
			child.pruneMap(fd, v.Map())
		case fd.Message() == nil: // all items of a list of plain values
		case fd.IsList():
			for i := range v.List().Len() {
				child[wildcard].prune(v.List().Get(i).Message())
			}
		default:
			child.prune(v.Message())
		}
		return true
	})
}

func (n node) pruneMap(fd protoreflect.FieldDescriptor, m protoreflect.Map) {
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		child, ok := n.below(k.String())
		switch {
		case !ok:
			m.Clear(k)
		case fd.MapValue().Message() != nil:
			child.prune(v.Message())
		}
		return true
	})
}

// Update copies the fields of an update mask from src to dst. Fields that are unset in src are
// cleared in dst. "*" replaces the whole message. An empty mask copies all fields that are set in
// src and clears none. A list is replaced whole. A map entry can be set alone.
//
// The error is InvalidArgument and names the path. dst is then unchanged.
func Update(dst, src proto.Message, mask *fieldmaskpb.FieldMask) error {
	d, s := dst.ProtoReflect(), src.ProtoReflect()
	if d.Descriptor().FullName() != s.Descriptor().FullName() {
		return fmt.Errorf("update of %s by %s", d.Descriptor().FullName(), s.Descriptor().FullName())
	}
	if len(mask.GetPaths()) == 0 {
		s.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			setField(d, s, fd.Name())
			return true
		})
		return nil
	}
	root, err := tree(mask, d.Descriptor(), true)
	switch {
	case err != nil:
		return Invalid("update_mask", "%s", err)
	case root == nil:
		// A client cannot know these fields, so it cannot mean to clear them.
		unknown := d.GetUnknown()
		proto.Reset(dst)
		proto.Merge(dst, src)
		d.SetUnknown(unknown)
	default:
		root.update(d, s)
	}
	return nil
}

// setField copies a field from src to dst, or clears it.
func setField(dst, src protoreflect.Message, name protoreflect.Name) {
	to, from := dst.Descriptor().Fields().ByName(name), src.Descriptor().Fields().ByName(name)
	dst.Clear(to)
	if !src.Has(from) {
		return
	}
	switch {
	case to.IsList() || to.IsMap() || to.Message() != nil:
		// Merge a message with only this field: it copies everything below it, and dst shares
		// nothing with src.
		one := src.New()
		one.Set(from, src.Get(from))
		proto.Merge(dst.Interface(), one.Interface())
	default:
		dst.Set(to, src.Get(from))
	}
}

func (n node) update(dst, src protoreflect.Message) {
	for name, child := range n {
		to, from := dst.Descriptor().Fields().ByName(protoreflect.Name(name)), src.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch {
		case len(child) == 0:
			setField(dst, src, to.Name())
		case to.IsMap():
			child.updateMap(to, dst.Mutable(to).Map(), src.Get(from).Map())
		// Mutable would create an empty message where neither side has one.
		case !src.Has(from) && !dst.Has(to):
		default:
			child.update(dst.Mutable(to).Message(), src.Get(from).Message())
		}
	}
}

func (n node) updateMap(fd protoreflect.FieldDescriptor, dst, src protoreflect.Map) {
	for key, child := range n {
		k, ok := protodoc.MapKey(key, fd.MapKey())
		switch {
		case !ok:
		// Nothing to copy: remove the entry instead of storing a zero value.
		case !src.Has(k) && (len(child) == 0 || !dst.Has(k)):
			dst.Clear(k)
		case fd.MapValue().Message() == nil:
			dst.Set(k, src.Get(k))
		case len(child) == 0:
			v := dst.NewValue()
			proto.Merge(v.Message().Interface(), src.Get(k).Message().Interface())
			dst.Set(k, v)
		default:
			from := dst.NewValue().Message() // an absent entry has no field set
			if src.Has(k) {
				from = src.Get(k).Message()
			}
			child.update(dst.Mutable(k).Message(), from)
		}
	}
}
