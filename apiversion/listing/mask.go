package listing

import (
	"dbcontroller.dev/apiversion/protodoc"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// node is a mask as a tree. One without children stands for all that is below it.
type node map[string]node

// maxPaths bounds the paths of a mask, which is read anew for each message.
const maxPaths = 1000

// tree reads the paths of a mask, all of them checked.
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
		if forUpdate && f.many {
			return nil, fmt.Errorf("%s leads into the items of a list: it can only be replaced whole", path)
		}
		root.add(f.masked())
	}
	return root, nil
}

// masked returns the parts of a path with the wildcard for items put in.
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

// add adds a path, which swallows those below it.
func (n node) add(parts []string) {
	for i, p := range parts {
		child, ok := n[p]
		switch {
		case i == len(parts)-1:
			n[p] = node{}
			return
		case ok && len(child) == 0:
			return // all of it is in the mask already
		case !ok:
			child = node{}
			n[p] = child
		}
		n = child
	}
}

// below is the part of a mask for an entry or item; ok is false if it is not in there.
func (n node) below(key string) (child node, ok bool) {
	if child, ok = n[key]; !ok {
		child, ok = n[wildcard]
	}
	return child, ok
}

// CheckMask checks the paths of a read mask for messages of a type. The error is
// InvalidArgument and names the path.
func CheckMask(mask *fieldmaskpb.FieldMask, d protoreflect.MessageDescriptor) error {
	if _, err := tree(mask, d, false); err != nil {
		return Invalid("read_mask", "%s", err)
	}
	return nil
}

// ApplyMask clears, in msg, what a read mask does not ask for. A mask that is nil, empty
// or "*" asks for everything. Paths lead through messages, entries of maps (labels.x)
// and all items of lists.
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

// prune clears what is not below n.
func (n node) prune(m protoreflect.Message) {
	if len(n) == 0 {
		return
	}
	m.SetUnknown(nil)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		child, ok := n[string(fd.Name())]
		switch {
		case !ok:
			m.Clear(fd)
		case len(child) == 0:
		case fd.IsMap():
			child.pruneMap(fd, v.Map())
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

// Update sets in dst what an update mask names, to what src has there: cleared where src
// has nothing. "*" replaces all. Without paths every field that is set in src is set,
// none is cleared. A list can only be replaced whole, an entry of a map can be set alone.
// The error is InvalidArgument and names the path; dst is then as it was.
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
		unknown := d.GetUnknown()
		proto.Reset(dst)
		proto.Merge(dst, src)
		d.SetUnknown(unknown)
	default:
		root.update(d, s)
	}
	return nil
}

// setField makes a field of dst a copy of that of src.
func setField(dst, src protoreflect.Message, name protoreflect.Name) {
	to, from := dst.Descriptor().Fields().ByName(name), src.Descriptor().Fields().ByName(name)
	dst.Clear(to)
	if !src.Has(from) {
		return
	}
	switch {
	case to.IsList() || to.IsMap() || to.Message() != nil:
		// A message with this field alone, so that everything below is copied.
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
		case !src.Has(k) && (len(child) == 0 || !dst.Has(k)):
			dst.Clear(k)
		case fd.MapValue().Message() == nil:
			dst.Set(k, src.Get(k))
		case len(child) == 0:
			v := dst.NewValue()
			proto.Merge(v.Message().Interface(), src.Get(k).Message().Interface())
			dst.Set(k, v)
		default:
			from := dst.NewValue().Message() // an absent entry has nothing set
			if src.Has(k) {
				from = src.Get(k).Message()
			}
			child.update(dst.Mutable(k).Message(), from)
		}
	}
}
