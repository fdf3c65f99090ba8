package protodoc

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal returns the canonical document of a message. It does not keep msg. Errors are *Error.
func Marshal(msg proto.Message) (bson.Raw, error) { return marshal(nil, msg) }

// MarshalID is Marshal with a string _id as the first element: the document of a new record.
func MarshalID(id string, msg proto.Message) (bson.Raw, error) {
	return marshal(&id, msg)
}

func marshal(id *string, msg proto.Message) (bson.Raw, error) {
	m := msg.ProtoReflect()
	if k := wellKnownOf(m.Descriptor()); k != none && k != structKind {
		return nil, failf("a %s alone is no document", m.Descriptor().FullName())
	}
	start, dst := bsoncore.AppendDocumentStart(make([]byte, 0, 256))
	// MongoDB expects the _id first.
	if id != nil {
		if !utf8.ValidString(*id) {
			return nil, at("_id", errUTF8)
		}
		dst = bsoncore.AppendStringElement(dst, "_id", *id)
	}
	dst, err := appendFields(dst, m, 1)
	if err != nil {
		return nil, err
	}
	return end(dst, start), nil
}

// end writes the length of the document that begins at start.
func end(dst []byte, start int32) []byte {
	dst, err := bsoncore.AppendDocumentEnd(dst, start)
	if err != nil {
		panic(err) // the caller took start from AppendDocumentStart
	}
	return dst
}

// appendFields appends the elements of a message's document.
func appendFields(dst []byte, m protoreflect.Message, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	d := m.Descriptor()
	if err := checkKnown(m); err != nil {
		return nil, err
	}
	if wellKnownOf(d) == structKind {
		return appendMapEntries(dst, d.Fields().ByNumber(1), m.Get(d.Fields().ByNumber(1)).Map(), depth)
	}
	fields := d.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		// Fields without presence are written even if zero: absent would be ambiguous.
		if fd.HasPresence() && !m.Has(fd) {
			continue
		}
		var err error
		if dst, err = appendElement(dst, string(fd.Name()), fd, m.Get(fd), depth); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// checkKnown refuses unknown fields and extensions, since no name exists for them in the document.
func checkKnown(m protoreflect.Message) error {
	if b := m.GetUnknown(); len(b) > 0 {
		number, _, _ := protowire.ConsumeTag(b)
		return failf("protobuf field %d of %s is unknown to this program", number, m.Descriptor().FullName())
	}
	// Most messages allow no extensions. Do not walk all their fields.
	if m.Descriptor().ExtensionRanges().Len() == 0 {
		return nil
	}
	var err error
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.IsExtension() {
			err = failf("extension %s is not supported", fd.FullName())
		}
		return err == nil
	})
	return err
}

// appendElement appends a whole field: a list, a map or a single value.
func appendElement(dst []byte, key string, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) ([]byte, error) {
	header := len(dst)
	// The type is known only after the value, so write a placeholder.
	dst = bsoncore.AppendHeader(dst, 0, key)
	var t bsoncore.Type
	var err error
	switch {
	case fd.IsList():
		t = bsoncore.TypeArray
		dst, err = appendList(dst, fd, v.List(), depth+1)
	case fd.IsMap():
		t = bsoncore.TypeEmbeddedDocument
		start, opened := bsoncore.AppendDocumentStart(dst)
		if dst, err = appendMapEntries(opened, fd, v.Map(), depth+1); err == nil {
			dst = end(dst, start)
		}
	default:
		dst, t, err = appendValue(dst, fd, v, depth)
	}
	if err != nil {
		return nil, at(key, err)
	}
	// Now the type is known. AppendHeader put it first.
	dst[header] = byte(t)
	return dst, nil
}

func appendList(dst []byte, fd protoreflect.FieldDescriptor, l protoreflect.List, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	start, dst := bsoncore.AppendArrayStart(dst)
	for i := range l.Len() {
		var err error
		if dst, err = appendItem(dst, strconv.Itoa(i), fd, l.Get(i), depth); err != nil {
			return nil, err
		}
	}
	return end(dst, start), nil
}

// appendItem appends a list item or the value of a map entry.
func appendItem(dst []byte, key string, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) ([]byte, error) {
	header := len(dst)
	dst = bsoncore.AppendHeader(dst, 0, key)
	dst, t, err := appendValue(dst, fd, v, depth)
	if err != nil {
		return nil, at(key, err)
	}
	dst[header] = byte(t)
	return dst, nil
}

func appendMapEntries(dst []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	// Go maps have no order, and equal messages must have equal documents.
	for _, k := range sortedKeys(m) {
		name, err := keyName(k)
		if err != nil {
			return nil, err
		}
		if dst, err = appendItem(dst, name, fd.MapValue(), m.Get(k), depth); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	return keys
}

// compareKeys compares two keys of one map.
func compareKeys(a, b protoreflect.MapKey) int {
	switch x := a.Interface().(type) {
	case string:
		return strings.Compare(x, b.String())
	case bool:
		return strings.Compare(a.String(), b.String()) // "false" < "true"
	case int32, int64:
		return compareOrdered(a.Int(), b.Int())
	default:
		return compareOrdered(a.Uint(), b.Uint())
	}
}

func compareOrdered[T int64 | uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

var errUTF8 = failf("text is not UTF-8")

// keyName returns the element name of a map key.
func keyName(k protoreflect.MapKey) (string, error) {
	name := k.String()
	switch {
	// BSON ends an element name with NUL, so the rest of the key would get lost.
	case strings.ContainsRune(name, 0):
		return "", failf("a key of the map holds a NUL byte")
	case !utf8.ValidString(name):
		return "", failf("a key of the map is not UTF-8")
	}
	return name, nil
}

// appendValue appends a single value and returns its BSON type.
func appendValue(dst []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) ([]byte, bsoncore.Type, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return bsoncore.AppendBoolean(dst, v.Bool()), bsoncore.TypeBoolean, nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return bsoncore.AppendInt32(dst, int32(v.Int())), bsoncore.TypeInt32, nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return bsoncore.AppendInt64(dst, v.Int()), bsoncore.TypeInt64, nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		dst, t := appendUint(dst, v.Uint())
		return dst, t, nil
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return bsoncore.AppendDouble(dst, v.Float()), bsoncore.TypeDouble, nil
	case protoreflect.StringKind:
		// proto2 strings may hold any bytes, but BSON requires UTF-8.
		if !utf8.ValidString(v.String()) {
			return nil, 0, errUTF8
		}
		return bsoncore.AppendString(dst, v.String()), bsoncore.TypeString, nil
	case protoreflect.BytesKind:
		return bsoncore.AppendBinary(dst, 0, v.Bytes()), bsoncore.TypeBinary, nil
	case protoreflect.EnumKind:
		if named := fd.Enum().Values().ByNumber(v.Enum()); named != nil {
			return bsoncore.AppendString(dst, string(named.Name())), bsoncore.TypeString, nil
		}
		// A newer program set this value. Its number keeps it exact.
		return bsoncore.AppendInt32(dst, int32(v.Enum())), bsoncore.TypeInt32, nil
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(dst, v.Message(), depth+1)
	default:
		return nil, 0, failf("kind %s is not supported", fd.Kind())
	}
}

// appendUint appends a uint64. BSON has no unsigned type, so values above int64 become decimals.
func appendUint(dst []byte, u uint64) ([]byte, bsoncore.Type) {
	if u <= math.MaxInt64 {
		return bsoncore.AppendInt64(dst, int64(u)), bsoncore.TypeInt64
	}
	return bsoncore.AppendDecimal128(dst, decimalZero, u), bsoncore.TypeDecimal128
}

// decimalZero is the high half of a decimal128 with a non-negative integer below 2^64. It encodes
// exponent 0, which is biased by 6176 and starts at bit 49.
const decimalZero = uint64(6176) << 49

// appendMessage appends a message and returns its BSON type. Well-known types need not be
// documents.
func appendMessage(dst []byte, m protoreflect.Message, depth int) ([]byte, bsoncore.Type, error) {
	switch k := wellKnownOf(m.Descriptor()); k {
	case none, structKind:
		start, dst := bsoncore.AppendDocumentStart(dst)
		dst, err := appendFields(dst, m, depth)
		if err != nil {
			return nil, 0, err
		}
		return end(dst, start), bsoncore.TypeEmbeddedDocument, nil
	default:
		return appendWellKnown(dst, k, m, depth)
	}
}
