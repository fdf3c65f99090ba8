package bbs

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// fieldType lists the BSON types that a field may have. A record with any other type is malformed.
type fieldType struct {
	name  string
	types []bson.Type
	// within holds the fields of an object that are checked as well.
	within map[string]fieldType
}

var (
	isText   = fieldType{name: "a string", types: []bson.Type{bson.TypeString}}
	isInt    = fieldType{name: "an integer", types: []bson.Type{bson.TypeInt32, bson.TypeInt64}}
	isBool   = fieldType{name: "a bool", types: []bson.Type{bson.TypeBoolean}}
	isList   = fieldType{name: "an array", types: []bson.Type{bson.TypeArray}}
	isObject = fieldType{name: "an object", types: []bson.Type{bson.TypeEmbeddedDocument}}
)

func objectOf(within map[string]fieldType) fieldType {
	t := isObject
	t.within = within
	return t
}

var (
	tagType = objectOf(map[string]fieldType{"epoch": isText, "index": isInt})

	definitionType = objectOf(map[string]fieldType{
		"rootfs": isText, "env": isList, "action": isObject, "memory_mb": isInt, "disk_mb": isInt, "ports": isList,
		"cpu_weight": isInt, "privileged": isBool, "log_guid": isText, "start_timeout_ms": isInt,
	})

	desiredLRPTypes = map[string]fieldType{
		fieldGUID: isText, "domain": isText, "instances": isInt, "routes": isObject, "annotation": isText,
		fieldDefinition: definitionType, fieldTag: tagType, fieldDefID: isText, "rollout_timeout_ms": isInt, "fall_back_after_ms": isInt,
	}

	instanceType = objectOf(map[string]fieldType{
		fieldPlacement: isText, "instance_guid": isText, "cell_id": isText, "state": isText, "epoch": isText, "wanted_ms": isInt, "since_ms": isInt,
		"crash_count": isInt, "crash_reason": isText, "placement_error": isText, "retire": isBool, "given_up": isBool,
	})

	actualTypes = map[string]fieldType{
		"name": isText, "revision": isInt, fieldGUID: isText, "index": isInt, fieldInstance: instanceType, fieldEvacuating: instanceType, fieldDefID: isText,
	}

	deploymentTypes = map[string]fieldType{
		fieldGUID: isText, "domain": isText, "instances": isInt, "routes": isObject, "annotation": isText,
		fieldActive: isText, fieldHealthy: isText, fieldFormer: isList, fieldTag: tagType, "rollout_timeout_ms": isInt, "fall_back_after_ms": isInt,
	}

	definitionTypes = map[string]fieldType{fieldGUID: isText, fieldDefID: isText, fieldDefinition: definitionType}
)

// fields are the top-level elements of a document, not decoded.
type fields []bsoncore.Element

// readFields splits a document into its fields and checks the known ones. It refuses fields that
// only the other version uses, since a conversion would confuse them with that version's own.
func readFields(doc bson.Raw, guid string, types map[string]fieldType, foreign ...string) (fields, error) {
	f := make(fields, 0, 16)
	err := each(doc, func(e bsoncore.Element) error {
		name, v := e.KeyBytes(), e.Value()
		if slices.Contains(foreign, string(name)) {
			return fmt.Errorf("field %s belongs to the other version", name)
		}
		if err := check(name, v, types); err != nil {
			return err
		}
		// StringValue would panic at a damaged string.
		if text, _ := v.StringValueOK(); string(name) == fieldGUID && text != guid {
			return fmt.Errorf("%s is %q in the record of %q", fieldGUID, text, guid)
		}
		f = append(f, e)
		return nil
	})
	return f, err
}

// each calls f for the top-level elements of a document, without copying them.
func each(doc []byte, f func(bsoncore.Element) error) error {
	// A truncated document, or one with trailing bytes, must not be copied into another one.
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 || doc[len(doc)-1] != 0 {
		return errors.New("document is not well-formed BSON")
	}
	for len(rest) > 1 {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return errors.New("document is not well-formed BSON")
		}
		if err := f(e); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

func check(name []byte, v bsoncore.Value, types map[string]fieldType) error {
	t, known := types[string(name)]
	if !known {
		return nil
	}
	if !slices.Contains(t.types, bson.Type(v.Type)) {
		return fmt.Errorf("%s is of type %s, not %s", name, v.Type, t.name)
	}
	if t.within == nil {
		return nil
	}
	err := each(v.Data, func(e bsoncore.Element) error { return check(e.KeyBytes(), e.Value(), t.within) })
	if err != nil {
		return fmt.Errorf("%s.%w", name, err)
	}
	return nil
}

// get returns a field's value, or the zero Value if the field is absent.
func (f fields) get(name string) bsoncore.Value {
	for _, e := range f {
		if string(e.KeyBytes()) == name {
			return e.Value()
		}
	}
	return bsoncore.Value{}
}

// build writes a document of the fields that keep selects, unchanged byte for byte, and of the
// fields that more appends.
func (f fields) build(keep func(name []byte) bool, more func(dst []byte) []byte) bson.Raw {
	// Room for the fields that more appends, so that the slice grows seldom.
	size := 128
	for _, e := range f {
		size += len(e)
	}
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, size))
	for _, e := range f {
		if keep(e.KeyBytes()) {
			dst = append(dst, e...)
		}
	}
	dst, err := bsoncore.AppendDocumentEnd(more(dst), at)
	if err != nil {
		panic(err) // dst starts with our own AppendDocumentStart
	}
	return dst
}

// inOrderOf reorders the fields of doc as in order, and puts additional fields at the end. An
// unchanged v2 document thus comes back as the same bytes.
func inOrderOf(order, doc bson.Raw) (bson.Raw, error) {
	var rest fields
	if err := each(doc, func(e bsoncore.Element) error { rest = append(rest, e); return nil }); err != nil {
		return nil, err
	}
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)))
	err := each(order, func(e bsoncore.Element) error {
		// Fields that doc no longer has are skipped.
		i := slices.IndexFunc(rest, func(r bsoncore.Element) bool { return string(r.KeyBytes()) == string(e.KeyBytes()) })
		if i >= 0 {
			dst = append(dst, rest[i]...)
			rest = slices.Delete(rest, i, i+1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range rest {
		dst = append(dst, e...)
	}
	return bsoncore.AppendDocumentEnd(dst, at)
}
