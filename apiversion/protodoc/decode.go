package protodoc

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Unmarshal sets msg to the content of a document. It ignores elements that msg does not know;
// Merge keeps them. It copies all values, so the caller may reuse doc. Errors are *Error. After an
// error the content of msg is incomplete.
func Unmarshal(doc bson.Raw, msg proto.Message) error {
	if err := bsoncore.Document(doc).Validate(); err != nil {
		return failf("the document is malformed: %v", err)
	}
	// Validate accepts trailing bytes, which would get lost.
	if size, _, _ := bsoncore.ReadLength(doc); int(size) != len(doc) {
		return failf("the document is malformed: %d bytes follow it", len(doc)-int(size))
	}
	proto.Reset(msg)
	m := msg.ProtoReflect()
	// A single value, such as a Timestamp, has no elements.
	if k := wellKnownOf(m.Descriptor()); k != none && k != structKind {
		return failf("a %s alone is no document", m.Descriptor().FullName())
	}
	return decodeFields(bsoncore.Document(doc), m, 1)
}

// each calls f for each element of a valid document. It stops at the first error.
func each(doc bsoncore.Document, f func(key string, v bsoncore.Value) error) error {
	if len(doc) < 5 {
		return failf("the document is malformed")
	}
	rest := doc[4 : len(doc)-1]
	for len(rest) > 0 {
		el, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return failf("the document is malformed")
		}
		rest = after
		// Validate has checked the sizes, so key and value are within the document.
		key := el.Key()
		if err := f(key, el.Value()); err != nil {
			return err
		}
	}
	return nil
}

// decodeFields reads the elements of a document into the fields of a message.
func decodeFields(doc bsoncore.Document, m protoreflect.Message, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	fields := m.Descriptor().Fields()
	// A Struct is a document whose elements are the entries of its only field.
	if wellKnownOf(m.Descriptor()) == structKind {
		return decodeMap(doc, fields.ByNumber(onlyField), m.Mutable(fields.ByNumber(onlyField)).Map(), depth)
	}
	// By field and not by key: two aliases of one field are a duplicate too.
	seen := make([]bool, fields.Len())
	return each(doc, func(key string, v bsoncore.Value) error {
		fd := Field(m.Descriptor(), key)
		if fd == nil {
			return nil
		}
		if seen[fd.Index()] {
			return at(string(fd.Name()), failf("is there twice"))
		}
		seen[fd.Index()] = true
		if err := decodeField(v, m, fd, depth); err != nil {
			return at(key, err)
		}
		return nil
	})
}

// isUnset reports whether v is a null that means unset. In a google.protobuf.Value null is a value.
func isUnset(v bsoncore.Value, fd protoreflect.FieldDescriptor) bool {
	return v.Type == bsoncore.TypeNull && (fd.IsList() || fd.IsMap() || fd.Message() == nil || wellKnownOf(fd.Message()) != valueKind)
}

// decodeField reads one element into a field: a list, a map or a single value.
func decodeField(v bsoncore.Value, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) error {
	if isUnset(v, fd) {
		return nil
	}
	// Setting a second member would silently clear the first one.
	if o := fd.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
		return failf("another field of oneof %s is set as well", o.Name())
	}
	switch {
	case fd.IsList():
		if v.Type != bsoncore.TypeArray {
			return wrongType(v, "an array")
		}
		return decodeList(v.Array(), fd, m.Mutable(fd).List(), depth+1)
	case fd.IsMap():
		if v.Type != bsoncore.TypeEmbeddedDocument {
			return wrongType(v, "a document")
		}
		return decodeMap(v.Document(), fd, m.Mutable(fd).Map(), depth+1)
	case fd.Message() != nil:
		return decodeMessage(v, m.Mutable(fd).Message(), depth+1)
	}
	value, err := decodeScalar(v, fd)
	if err != nil {
		return err
	}
	m.Set(fd, value)
	return nil
}

func decodeList(arr bsoncore.Array, fd protoreflect.FieldDescriptor, l protoreflect.List, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	return each(bsoncore.Document(arr), func(key string, v bsoncore.Value) error {
		// Only a google.protobuf.Value item may be null. Other items cannot be absent.
		item := l.NewElement()
		if fd.Message() != nil {
			if err := decodeMessage(v, item.Message(), depth+1); err != nil {
				return at(key, err)
			}
		} else {
			var err error
			if item, err = decodeScalar(v, fd); err != nil {
				return at(key, err)
			}
		}
		l.Append(item)
		return nil
	})
}

func decodeMap(doc bsoncore.Document, fd protoreflect.FieldDescriptor, m protoreflect.Map, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	return each(doc, func(key string, v bsoncore.Value) error {
		// Only canonical keys are valid, so two keys cannot become one.
		k, ok := MapKey(key, fd.MapKey())
		if !ok {
			return at(key, failf("the key is not a %s", fd.MapKey().Kind()))
		}
		// BSON allows an element twice, and the second one would win silently.
		if m.Has(k) {
			return at(key, failf("is there twice"))
		}
		value := m.NewValue()
		var err error
		if fd.MapValue().Message() != nil {
			err = decodeMessage(v, value.Message(), depth+1)
		} else {
			value, err = decodeScalar(v, fd.MapValue())
		}
		if err != nil {
			return at(key, err)
		}
		m.Set(k, value)
		return nil
	})
}

// decodeMessage reads a message, which may be well known.
func decodeMessage(v bsoncore.Value, m protoreflect.Message, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	fields := m.Descriptor().Fields()
	only := fields.ByNumber(onlyField)
	switch wellKnownOf(m.Descriptor()) {
	case timestampKind:
		t, err := decodeTime(v)
		if err != nil {
			return err
		}
		return setTime(m, t)
	case durationKind:
		// A number has no known unit, so refuse it.
		text, ok := v.StringValueOK()
		if !ok {
			return wrongType(v, "a string such as \"1.5s\"")
		}
		seconds, nanos, err := parseDuration(text)
		if err != nil {
			return err
		}
		setPair(m, seconds, nanos)
		return nil
	case wrapperKind:
		value, err := decodeScalar(v, only)
		if err != nil {
			return err
		}
		m.Set(only, value)
		return nil
	case listValueKind:
		if v.Type != bsoncore.TypeArray {
			return wrongType(v, "an array")
		}
		return decodeList(v.Array(), only, m.Mutable(only).List(), depth)
	case valueKind:
		return decodeAny(v, m, depth)
	// Both are documents.
	case none, structKind:
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return wrongType(v, "a document")
	}
	return decodeFields(v.Document(), m, depth)
}

// decodeTime reads a date, or a string if the time has a fraction of a millisecond.
func decodeTime(v bsoncore.Value) (time.Time, error) {
	if ms, ok := v.DateTimeOK(); ok {
		return time.UnixMilli(ms).UTC(), nil
	}
	text, ok := v.StringValueOK()
	if !ok {
		return time.Time{}, wrongType(v, "a date or an RFC 3339 string")
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, failf("%d characters that are not a time of RFC 3339", len(text))
	}
	return t.UTC(), nil
}

// The fields of google.protobuf.Value.
const (
	nullValue = iota + 1
	numberValue
	stringValue
	boolValue
	structValue
	listValue
)

// decodeAny reads a google.protobuf.Value. The BSON type decides which of its fields is set.
func decodeAny(v bsoncore.Value, m protoreflect.Message, depth int) error {
	fields := m.Descriptor().Fields()
	var number protoreflect.FieldNumber
	switch v.Type {
	case bsoncore.TypeNull:
		m.Set(fields.ByNumber(nullValue), protoreflect.ValueOfEnum(0))
		return nil
	// A Value has one kind of number, so all BSON numbers become doubles.
	case bsoncore.TypeDouble, bsoncore.TypeInt32, bsoncore.TypeInt64:
		number = numberValue
	case bsoncore.TypeString:
		number = stringValue
	case bsoncore.TypeBoolean:
		number = boolValue
	case bsoncore.TypeEmbeddedDocument:
		return decodeMessage(v, m.Mutable(fields.ByNumber(structValue)).Message(), depth)
	case bsoncore.TypeArray:
		return decodeMessage(v, m.Mutable(fields.ByNumber(listValue)).Message(), depth)
	default:
		return wrongType(v, "what JSON has")
	}
	value, err := decodeScalar(v, fields.ByNumber(number))
	if err != nil {
		return err
	}
	m.Set(fields.ByNumber(number), value)
	return nil
}
