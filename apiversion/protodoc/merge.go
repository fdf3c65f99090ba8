package protodoc

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Merge returns doc with the content of msg written into it. It does not change doc. At every
// level:
//
//   - Elements that msg does not know stay in their place.
//   - Unchanged fields keep their bytes.
//   - Changed fields are written in their place, under their own name.
//   - New fields follow the existing ones.
//   - Unset fields are removed.
//
// List items have no identity. If the changed items between equal ones are as many as before, each
// is merged into the item at its place. Otherwise they are written anew.
func Merge(doc bson.Raw, msg proto.Message) (bson.Raw, error) {
	m := msg.ProtoReflect()
	// The old message shows which fields changed.
	old := m.New()
	if err := Unmarshal(doc, old.Interface()); err != nil {
		return nil, err
	}
	start, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+64))
	dst, err := mergeFields(dst, bsoncore.Document(doc), old, m, 1)
	if err != nil {
		return nil, err
	}
	return end(dst, start), nil
}

func mergeFields(dst []byte, doc bsoncore.Document, old, m protoreflect.Message, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	if err := checkKnown(m); err != nil {
		return nil, err
	}
	if wellKnownOf(m.Descriptor()) == structKind {
		only := m.Descriptor().Fields().ByNumber(onlyField)
		return mergeMap(dst, doc, only, old.Get(only).Map(), m.Get(only).Map(), depth)
	}
	fields := m.Descriptor().Fields()
	// Elements first, in the document's order. Fields that it does not have come after them.
	there := make([]bool, fields.Len())
	err := each(doc, func(key string, v bsoncore.Value) error {
		fd := Field(m.Descriptor(), key)
		// Copy unknown and unchanged elements: encoding them again could change their form.
		if fd == nil || same(old, m, fd) {
			if fd != nil {
				there[fd.Index()] = true
			}
			dst = bsoncore.AppendValueElement(dst, key, v)
			return nil
		}
		there[fd.Index()] = true
		if fd.HasPresence() && !m.Has(fd) {
			return nil
		}
		var err error
		dst, err = mergeElement(dst, string(fd.Name()), fd, v, old, m, depth) // a changed field drops its alias
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		if there[i] || same(old, m, fd) || fd.HasPresence() && !m.Has(fd) {
			continue
		}
		if dst, err = appendElement(dst, string(fd.Name()), fd, m.Get(fd), depth); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// same reports whether a field is the same in two messages.
func same(a, b protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	if fd.HasPresence() && (a.Has(fd) != b.Has(fd) || !a.Has(fd)) {
		return a.Has(fd) == b.Has(fd)
	}
	if !fd.HasPresence() && a.Has(fd) != b.Has(fd) {
		return false // 0 and -0 are equal but not the same
	}
	return a.Get(fd).Equal(b.Get(fd))
}

// mergeElement writes a changed field over its element in the document.
func mergeElement(dst []byte, key string, fd protoreflect.FieldDescriptor, v bsoncore.Value, old, m protoreflect.Message, depth int) ([]byte, error) {
	// Only a document or an array can contain unknown elements to keep.
	mergeable := v.Type == bsoncore.TypeEmbeddedDocument || v.Type == bsoncore.TypeArray
	if !mergeable || !fd.IsMap() && !fd.IsList() && fd.Message() == nil {
		return appendElement(dst, key, fd, m.Get(fd), depth)
	}
	header := len(dst)
	dst = bsoncore.AppendHeader(dst, v.Type, key)
	var err error
	switch start, opened := bsoncore.AppendDocumentStart(dst); {
	case fd.IsList():
		if dst, err = mergeList(opened, v.Array(), fd, old.Get(fd).List(), m.Get(fd).List(), depth+1); err == nil {
			dst = end(dst, start)
		}
	case fd.IsMap():
		if dst, err = mergeMap(opened, v.Document(), fd, old.Get(fd).Map(), m.Get(fd).Map(), depth+1); err == nil {
			dst = end(dst, start)
		}
	default:
		var t bsoncore.Type
		dst, t, err = mergeMessage(dst, v, old.Get(fd).Message(), m.Get(fd).Message(), depth+1)
		if err == nil {
			dst[header] = byte(t)
		}
	}
	if err != nil {
		return nil, at(key, err)
	}
	return dst, nil
}

// mergeMessage writes a message over its old value.
func mergeMessage(dst []byte, v bsoncore.Value, old, m protoreflect.Message, depth int) ([]byte, bsoncore.Type, error) {
	k := wellKnownOf(m.Descriptor())
	// A well-known type has no unknown fields, so write it anew.
	if v.Type != bsoncore.TypeEmbeddedDocument || k != none && k != structKind {
		return appendMessage(dst, m, depth)
	}
	start, dst := bsoncore.AppendDocumentStart(dst)
	dst, err := mergeFields(dst, v.Document(), old, m, depth)
	if err != nil {
		return nil, 0, err
	}
	return end(dst, start), v.Type, nil
}

// mergeItem writes a list item or the value of an entry over its old value.
func mergeItem(dst []byte, key string, fd protoreflect.FieldDescriptor, v bsoncore.Value, old, m protoreflect.Value, depth int) ([]byte, error) {
	if m.Equal(old) {
		return bsoncore.AppendValueElement(dst, key, v), nil
	}
	if fd.Message() == nil {
		return appendItem(dst, key, fd, m, depth)
	}
	header := len(dst)
	dst = bsoncore.AppendHeader(dst, 0, key)
	dst, t, err := mergeMessage(dst, v, old.Message(), m.Message(), depth+1)
	if err != nil {
		return nil, at(key, err)
	}
	dst[header] = byte(t)
	return dst, nil
}

// mergeMap writes the entries in key order, so that the result does not depend on the old order.
func mergeMap(dst []byte, doc bsoncore.Document, fd protoreflect.FieldDescriptor, old, m protoreflect.Map, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	values := map[string]bsoncore.Value{}
	if err := each(doc, func(key string, v bsoncore.Value) error { values[key] = v; return nil }); err != nil {
		return nil, err
	}
	for _, k := range sortedKeys(m) {
		name, err := keyName(k)
		if err != nil {
			return nil, err
		}
		// An entry of the same key is the old value, wherever it stands.
		if v, ok := values[name]; ok {
			dst, err = mergeItem(dst, name, fd.MapValue(), v, old.Get(k), m.Get(k), depth)
		} else {
			dst, err = appendItem(dst, name, fd.MapValue(), m.Get(k), depth)
		}
		if err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// mergeList writes a list over its old value. Equal items at both ends keep their bytes.
func mergeList(dst []byte, arr bsoncore.Array, fd protoreflect.FieldDescriptor, old, m protoreflect.List, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	values := make([]bsoncore.Value, 0, old.Len())
	if err := each(bsoncore.Document(arr), func(_ string, v bsoncore.Value) error { values = append(values, v); return nil }); err != nil {
		return nil, err
	}
	// Count the equal items at the front and at the back.
	front, back := 0, 0
	for front < old.Len() && front < m.Len() && old.Get(front).Equal(m.Get(front)) {
		front++
	}
	for back < old.Len()-front && back < m.Len()-front && old.Get(old.Len()-1-back).Equal(m.Get(m.Len()-1-back)) {
		back++
	}
	for i := range m.Len() {
		before := i // place of the old item
		if i >= m.Len()-back {
			before = i - m.Len() + old.Len()
		}
		var err error
		// With equal lengths each item in the middle replaces the one at its place. Otherwise
		// nothing says which old item it was.
		if i < front || i >= m.Len()-back || old.Len() == m.Len() {
			dst, err = mergeItem(dst, strconv.Itoa(i), fd, values[before], old.Get(before), m.Get(i), depth)
		} else {
			dst, err = appendItem(dst, strconv.Itoa(i), fd, m.Get(i), depth)
		}
		if err != nil {
			return nil, err
		}
	}
	return dst, nil
}
