package protodoc

import (
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	protodocv1 "dbcontroller.dev/gen/dbcontroller/protodoc/v1"
)

// Field is the field of a message that an element of its document is, by the field's name or
// one of its aliases; nil if there is none.
func Field(d protoreflect.MessageDescriptor, element string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByName(protoreflect.Name(element)); fd != nil {
		return fd
	}
	return aliasesOf(d).fields[element]
}

// Aliased reports a field that documents may have under another name.
func Aliased(fd protoreflect.FieldDescriptor) bool {
	for _, of := range aliasesOf(fd.ContainingMessage()).fields {
		if of == fd {
			return true
		}
	}
	return false
}

// ValueNames returns the names under which documents may have a value of an enum.
func ValueNames(d protoreflect.EnumDescriptor, n protoreflect.EnumNumber) (names []string) {
	for i := range d.Values().Len() {
		if v := d.Values().Get(i); v.Number() == n {
			names = append(names, string(v.Name()))
		}
	}
	for alias, v := range valueAliasesOf(d).values {
		if v.Number() == n {
			names = append(names, alias)
		}
	}
	return names
}

// CheckAliases finds aliases, of a message and of all that it holds, that are not those of one
// field or enum value alone.
func CheckAliases(d protoreflect.MessageDescriptor) error {
	return checkAliases(d, map[protoreflect.FullName]bool{})
}

func checkAliases(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) error {
	if seen[d.FullName()] || wellKnownOf(d) != none {
		return nil
	}
	seen[d.FullName()] = true
	if err := aliasesOf(d).err; err != nil {
		return err
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.IsMap() {
			fd = fd.MapValue()
		}
		switch {
		case fd.Enum() != nil:
			if err := valueAliasesOf(fd.Enum()).err; err != nil {
				return err
			}
		case fd.Message() != nil:
			if err := checkAliases(fd.Message(), seen); err != nil {
				return err
			}
		}
	}
	return nil
}

type aliases struct {
	fields map[string]protoreflect.FieldDescriptor
	err    error
}

type valueAliases struct {
	values map[string]protoreflect.EnumValueDescriptor
	err    error
}

// known are the aliases of descriptors, which are the same for the life of a program.
var known, knownValues sync.Map

func aliasesOf(d protoreflect.MessageDescriptor) *aliases {
	if a, ok := known.Load(d); ok {
		return a.(*aliases)
	}
	a := &aliases{}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		for _, name := range listed(fd.Options(), &descriptorpb.FieldOptions{}, protodocv1.E_Alias) {
			other := d.Fields().ByName(protoreflect.Name(name))
			if other == nil {
				other = a.fields[name]
			}
			if other != nil || name == "" {
				a.err = fmt.Errorf("the alias %q of %s is a name of %s already: give it another, or remove it", name, fd.FullName(), d.FullName())
				continue
			}
			if a.fields == nil {
				a.fields = map[string]protoreflect.FieldDescriptor{}
			}
			a.fields[name] = fd
		}
	}
	known.Store(d, a)
	return a
}

// valueNamed is the value of an enum of a name, or an alias; nil if there is none.
func valueNamed(d protoreflect.EnumDescriptor, name string) protoreflect.EnumValueDescriptor {
	if v := d.Values().ByName(protoreflect.Name(name)); v != nil {
		return v
	}
	return valueAliasesOf(d).values[name]
}

func valueAliasesOf(d protoreflect.EnumDescriptor) *valueAliases {
	if a, ok := knownValues.Load(d); ok {
		return a.(*valueAliases)
	}
	a := &valueAliases{values: map[string]protoreflect.EnumValueDescriptor{}}
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		for _, name := range listed(v.Options(), &descriptorpb.EnumValueOptions{}, protodocv1.E_ValueAlias) {
			if a.values[name] != nil || d.Values().ByName(protoreflect.Name(name)) != nil || name == "" {
				a.err = fmt.Errorf("the alias %q of %s is a name of %s already: give it another, or remove it", name, v.FullName(), d.FullName())
				continue
			}
			a.values[name] = v
		}
	}
	knownValues.Store(d, a)
	return a
}

// listed is what an extension of options lists. A descriptor that was not generated may hold it
// as another implementation, or as bytes.
func listed(options, known proto.Message, extension protoreflect.ExtensionType) []string {
	raw, err := proto.Marshal(options)
	if err != nil || len(raw) == 0 || proto.Unmarshal(raw, known) != nil {
		return nil
	}
	return proto.GetExtension(known, extension).([]string) //nolint:forcetypeassert // as it is declared
}

// Renamed is a document with the present names of what has aliases, at every level, and
// otherwise as it is: for a data update, which comes before a lens that knows these names alone.
func Renamed(doc bson.Raw, d protoreflect.MessageDescriptor) (bson.Raw, error) {
	if err := Unmarshal(doc, dynamicpb.NewMessage(d)); err != nil {
		return nil, err
	}
	return bson.Raw(renamed(nil, bsoncore.Document(doc), d)), nil
}

// renamed appends a document that was read without errors.
func renamed(dst []byte, doc bsoncore.Document, d protoreflect.MessageDescriptor) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	_ = each(doc, func(key string, v bsoncore.Value) error {
		fd := Field(d, key)
		switch {
		case fd == nil:
			dst = bsoncore.AppendValueElement(dst, key, v)
		case fd.IsMap() || fd.IsList():
			if fd.IsMap() {
				dst = renamedItems(dst, string(fd.Name()), v, fd.MapValue())
				break
			}
			dst = renamedItems(dst, string(fd.Name()), v, fd)
		default:
			dst = renamedValue(dst, string(fd.Name()), v, fd)
		}
		return nil
	})
	return end(dst, start)
}

// renamedItems appends a list or map whose items are of a field.
func renamedItems(dst []byte, key string, v bsoncore.Value, fd protoreflect.FieldDescriptor) []byte {
	if v.Type == bsoncore.TypeNull {
		return bsoncore.AppendValueElement(dst, key, v)
	}
	dst = bsoncore.AppendHeader(dst, v.Type, key)
	start, dst := bsoncore.AppendDocumentStart(dst)
	_ = each(bsoncore.Document(v.Data), func(item string, v bsoncore.Value) error {
		dst = renamedValue(dst, item, v, fd)
		return nil
	})
	return end(dst, start)
}

func renamedValue(dst []byte, key string, v bsoncore.Value, fd protoreflect.FieldDescriptor) []byte {
	if fd.Enum() != nil {
		if name, ok := v.StringValueOK(); ok {
			if now := valueAliasesOf(fd.Enum()).values[name]; now != nil {
				return bsoncore.AppendStringElement(dst, key, string(now.Name()))
			}
		}
	}
	if sub, ok := v.DocumentOK(); ok && fd.Message() != nil && wellKnownOf(fd.Message()) == none {
		dst = bsoncore.AppendHeader(dst, v.Type, key)
		return renamed(dst, sub, fd.Message())
	}
	return bsoncore.AppendValueElement(dst, key, v)
}
