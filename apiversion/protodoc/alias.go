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

// Field returns the field for an element of a message's document, by name or by alias. It returns
// nil if there is none.
func Field(d protoreflect.MessageDescriptor, element string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByName(protoreflect.Name(element)); fd != nil {
		return fd
	}
	return aliasesOf(d).fields[element]
}

// Aliased reports whether documents may hold the field under another name.
func Aliased(fd protoreflect.FieldDescriptor) bool {
	for _, of := range aliasesOf(fd.ContainingMessage()).fields {
		if of == fd {
			return true
		}
	}
	return false
}

// ValueNames returns all names under which documents may hold an enum value. Aliases come last, in
// no order.
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

// CheckAliases returns an error for an alias that is empty or that more than one field or enum
// value claims. It checks the message and all messages in it.
func CheckAliases(d protoreflect.MessageDescriptor) error {
	return checkAliases(d, map[protoreflect.FullName]bool{})
}

// checkAliases checks the types that seen does not contain yet.
func checkAliases(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) error {
	if seen[d.FullName()] || wellKnownOf(d) != none {
		return nil
	}
	// Before the fields, or a recursive message would never end.
	seen[d.FullName()] = true
	if err := aliasesOf(d).err; err != nil {
		return err
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.IsMap() {
			// The map's own entry message has no options. Its value may have.
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

// aliases holds the aliases of a message's fields, or an error if they are ambiguous.
type aliases struct {
	fields map[string]protoreflect.FieldDescriptor
	err    error
}

// valueAliases holds the aliases of an enum's values, or an error if they are ambiguous.
type valueAliases struct {
	values map[string]protoreflect.EnumValueDescriptor
	err    error
}

// known and knownValues cache the aliases by descriptor. Descriptors never change, so nothing
// expires.
var known, knownValues sync.Map

// aliasesOf returns the aliases of a message's fields.
func aliasesOf(d protoreflect.MessageDescriptor) *aliases {
	if a, ok := known.Load(d); ok {
		return a.(*aliases)
	}
	a := &aliases{}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		for _, name := range listed(fd.Options(), &descriptorpb.FieldOptions{}, protodocv1.E_Alias) {
			// An alias must not be the name or the alias of another field.
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
	// Two goroutines may compute the same value. Either one is right.
	known.Store(d, a)
	return a
}

// valueNamed returns the enum value with a name or an alias. It returns nil if there is none.
func valueNamed(d protoreflect.EnumDescriptor, name string) protoreflect.EnumValueDescriptor {
	if v := d.Values().ByName(protoreflect.Name(name)); v != nil {
		return v
	}
	return valueAliasesOf(d).values[name]
}

// valueAliasesOf returns the aliases of an enum's values.
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

// listed returns the strings in an extension of options. It encodes and decodes the options,
// because a descriptor that was not generated may hold the extension in another form, or as unknown
// bytes.
func listed(options, known proto.Message, extension protoreflect.ExtensionType) []string {
	raw, err := proto.Marshal(options)
	if err != nil || len(raw) == 0 || proto.Unmarshal(raw, known) != nil {
		return nil
	}
	return proto.GetExtension(known, extension).([]string) //nolint:forcetypeassert // as it is declared
}

// Renamed returns a document with the present name in place of each alias, at every level.
// Everything else keeps its bytes. Use it in a data update before a lens that knows only the
// present names. It returns the *Error of Unmarshal if the document does not decode.
func Renamed(doc bson.Raw, d protoreflect.MessageDescriptor) (bson.Raw, error) {
	// renamed below has no error checks, so the document must be valid.
	if err := Unmarshal(doc, dynamicpb.NewMessage(d)); err != nil {
		return nil, err
	}
	return bson.Raw(renamed(nil, bsoncore.Document(doc), d)), nil
}

// renamed appends a valid document with present names.
func renamed(dst []byte, doc bsoncore.Document, d protoreflect.MessageDescriptor) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	_ = each(doc, func(key string, v bsoncore.Value) error {
		fd := Field(d, key)
		switch {
		// Elements that the message does not know stay.
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

// renamedItems appends a list or map. fd describes its items.
func renamedItems(dst []byte, key string, v bsoncore.Value, fd protoreflect.FieldDescriptor) []byte {
	// null stands for an unset list or map and has no items.
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

// renamedValue appends a single value.
func renamedValue(dst []byte, key string, v bsoncore.Value, fd protoreflect.FieldDescriptor) []byte {
	if fd.Enum() != nil {
		if name, ok := v.StringValueOK(); ok {
			// Numbers and present names are copied as they are.
			if now := valueAliasesOf(fd.Enum()).values[name]; now != nil {
				return bsoncore.AppendStringElement(dst, key, string(now.Name()))
			}
		}
	}
	// Well-known types have no fields that could have aliases.
	if sub, ok := v.DocumentOK(); ok && fd.Message() != nil && wellKnownOf(fd.Message()) == none {
		dst = bsoncore.AppendHeader(dst, v.Type, key)
		return renamed(dst, sub, fd.Message())
	}
	return bsoncore.AppendValueElement(dst, key, v)
}
