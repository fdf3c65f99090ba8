package listing

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// Fields names the request fields that listing uses. An empty name means that the request has no
// such field.
type Fields struct {
	Filter    protoreflect.Name
	OrderBy   protoreflect.Name
	PageSize  protoreflect.Name
	PageToken protoreflect.Name
	ReadMask  protoreflect.Name
}

// FieldsOf finds the Fields of a request type by their usual names and types: filter, order_by,
// page_size, page_token, and read_mask or field_mask.
func FieldsOf(d protoreflect.MessageDescriptor) Fields {
	find := func(fits func(protoreflect.FieldDescriptor) bool, names ...protoreflect.Name) protoreflect.Name {
		for _, name := range names {
			if fd := d.Fields().ByName(name); fd != nil && !fd.IsList() && !fd.IsMap() && fits(fd) {
				return name
			}
		}
		return ""
	}
	isText := func(fd protoreflect.FieldDescriptor) bool { return fd.Kind() == protoreflect.StringKind }
	isInt := func(fd protoreflect.FieldDescriptor) bool {
		t := typeOf(fd)
		return fd.Message() == nil && (t == intType || t == uintType)
	}
	return Fields{
		Filter:    find(isText, "filter"),
		OrderBy:   find(isText, "order_by"),
		PageSize:  find(isInt, "page_size"),
		PageToken: find(isText, "page_token"),
		ReadMask:  find(IsMask, "read_mask", "field_mask"),
	}
}

// IsMask reports whether a field is a google.protobuf.FieldMask.
func IsMask(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.FieldMask"
}

// Text returns the value of a string field of a message. It returns "" for an empty name.
func Text(m protoreflect.Message, name protoreflect.Name) string {
	if name == "" {
		return ""
	}
	return m.Get(m.Descriptor().Fields().ByName(name)).String()
}

// Mask returns a copy of a mask field. It returns nil for an empty name and for an unset field.
func Mask(m protoreflect.Message, name protoreflect.Name) *fieldmaskpb.FieldMask {
	if name == "" {
		return nil
	}
	fd := m.Descriptor().Fields().ByName(name)
	if !m.Has(fd) {
		return nil
	}
	v := m.Get(fd).Message()
	// The mask of a dynamic message is dynamic too, and then needs the copy below.
	if known, ok := v.Interface().(*fieldmaskpb.FieldMask); ok {
		return proto.CloneOf(known)
	}
	out := &fieldmaskpb.FieldMask{}
	paths := v.Get(v.Descriptor().Fields().ByNumber(1)).List()
	for i := range paths.Len() {
		out.Paths = append(out.Paths, paths.Get(i).String())
	}
	return out
}

// SetMask sets a mask field of a message to the paths of mask.
func SetMask(m protoreflect.Message, name protoreflect.Name, mask *fieldmaskpb.FieldMask) {
	v := m.Mutable(m.Descriptor().Fields().ByName(name)).Message()
	paths := v.Mutable(v.Descriptor().Fields().ByNumber(1)).List()
	paths.Truncate(0)
	for _, p := range mask.GetPaths() {
		paths.Append(protoreflect.ValueOfString(p))
	}
}

// size returns the value of the page size field, or 0 for an empty name. Unsigned values are capped
// at 2^31.
func size(m protoreflect.Message, name protoreflect.Name) int64 {
	if name == "" {
		return 0
	}
	switch n := ValueOf(m.Descriptor().Fields().ByName(name), m.Get(m.Descriptor().Fields().ByName(name))).(type) {
	case int64:
		return n
	case uint64:
		return int64(min(n, 1<<31))
	default:
		return 0
	}
}
