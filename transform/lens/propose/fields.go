package propose

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform/lens"
)

// field drafts the operations for a field of both versions, which has the name of the new version.
func (d *fieldDrafter) field(path string, old, now protoreflect.FieldDescriptor) {
	switch {
	case old.IsMap() != now.IsMap():
		d.remark(path + ": only one version has a map: write a hook")
	case old.IsMap():
		if storedAs(old.MapKey()) != storedAs(now.MapKey()) {
			d.remark(path + ": its keys have another type: check that all of them are keys of the other version")
		}
		d.items(path, "map", old.MapValue(), now.MapValue())
	case old.IsList() && now.IsList():
		d.items(path, "", old, now)
	case now.IsList():
		d.op(fmt.Sprintf("wrap: {field: %s}", quote(path)), "one value became a list: an empty value is a list with it")
		d.items(path, "", old, now)
	case old.IsList():
		d.op(fmt.Sprintf("unwrap: {field: %s}", quote(path)), "a list became one value: records with several are parked")
		d.value(path, old, now)
	default:
		d.value(path, old, now)
	}
}

// items drafts the operations for the items of a list, or the values of a map.
func (d *fieldDrafter) items(path, in string, old, now protoreflect.FieldDescriptor) {
	inner := &fieldDrafter{drafter: drafter{items: true}, within: d.within}
	if isObject(old) && isObject(now) {
		inner.nested("", old.Message(), now.Message())
	} else {
		inner.value(".", old, now)
	}
	var ops []string
	for _, line := range inner.ops {
		op, isOp := strings.CutPrefix(line, "  - ")
		if !isOp {
			d.remark("items of " + path + ": " + strings.TrimPrefix(line, "  # "))
			continue
		}
		// A comment would end the operation, which stands on one line.
		if text, comment, has := strings.Cut(op, " # "); has {
			d.remark("items of " + path + ": " + comment)
			op = text
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return
	}
	if in != "" {
		in = ", in: " + in
	}
	d.op(fmt.Sprintf("each: {field: %s%s, operations: [%s]}", quote(path), in, strings.Join(ops, ", ")), "")
}

// nested drafts the operations for an object.
func (d *fieldDrafter) nested(path string, old, now protoreflect.MessageDescriptor) {
	name := string(old.FullName()) + " " + string(now.FullName())
	if slices.Contains(d.within, name) {
		d.remark(path + ": the message contains itself: changes of its fields are drafted for the outer ones only")
		return
	}
	d.within = append(d.within, name)
	d.message(path, old, now)
	d.within = d.within[:len(d.within)-1]
}

// value drafts the conversion of one value.
func (d *fieldDrafter) value(path string, old, now protoreflect.FieldDescriptor) {
	from, to := storedAs(old), storedAs(now)
	switch {
	case from == "enum" && to == "enum":
		d.enum(path, old.Enum(), now.Enum())
	case from == "enum" && to == "int":
		d.numbers(path, old.Enum(), "%[1]s: %[2]d")
	case from == "int" && to == "enum":
		d.numbers(path, now.Enum(), "%[2]d: %[1]s")
	case from == "enum" && to == "string":
		d.remark(path + ": the text is the name of the value, " + string(old.Enum().Values().Get(0).Name()) + " and so on")
	case from == "string" && to == "enum":
		d.remark(path + ": a text that is no name of a value cannot be served by the new version: add a convert with a table")
	case from == "object" && to == "object":
		d.nested(path, old.Message(), now.Message())
	case from != to:
		d.convert(path, from, to, old, now)
	}
	if from == to && old.HasPresence() != now.HasPresence() && from != "object" {
		d.remark(path + ": only one version can leave it unset: there it is absent, and in the other version " + zeroText(old, now) + " is in its place")
	}
}

func zeroText(fields ...protoreflect.FieldDescriptor) string {
	for _, f := range fields {
		if value, ok := zero(f); ok {
			return value
		}
	}
	return "null"
}

// enum drafts the table of an enum: values with the same number are the same.
func (d *fieldDrafter) enum(path string, old, now protoreflect.EnumDescriptor) {
	var entries []string
	var missing []string
	differs := false
	seen := map[protoreflect.EnumNumber]bool{}
	for i := range old.Values().Len() {
		was := old.Values().Get(i)
		// Further names of a number are aliases, which no document holds.
		if seen[was.Number()] {
			continue
		}
		seen[was.Number()] = true
		is := now.Values().ByNumber(was.Number())
		if is == nil {
			missing = append(missing, string(was.Name()))
			continue
		}
		differs = differs || was.Name() != is.Name()
		entries = append(entries, fmt.Sprintf("%s: %s", quote(string(was.Name())), quote(string(is.Name()))))
	}
	var added []string
	for i := range now.Values().Len() {
		if v := now.Values().Get(i); !seen[v.Number()] {
			seen[v.Number()] = true
			added = append(added, string(v.Name()))
		}
	}
	if len(missing) > 0 {
		d.remark(fmt.Sprintf("%s: the new version has no value for %s", path, strings.Join(missing, ", ")))
	}
	if len(added) > 0 {
		d.remark(fmt.Sprintf("%s: the old version has no value for %s", path, strings.Join(added, ", ")))
	}
	if differs {
		d.op(fmt.Sprintf("convert: {field: %s, table: {%s}}", quote(path), strings.Join(entries, ", ")), "")
	}
}

// numbers drafts the table between the names and the numbers of an enum.
func (d *fieldDrafter) numbers(path string, enum protoreflect.EnumDescriptor, entry string) {
	var entries []string
	seen := map[protoreflect.EnumNumber]bool{}
	for i := range enum.Values().Len() {
		if v := enum.Values().Get(i); !seen[v.Number()] {
			seen[v.Number()] = true
			entries = append(entries, fmt.Sprintf(entry, quote(string(v.Name())), v.Number()))
		}
	}
	d.op(fmt.Sprintf("convert: {field: %s, table: {%s}}", quote(path), strings.Join(entries, ", ")), "records with other values are parked")
}

// convert drafts the conversion between two types of scalars.
func (d *fieldDrafter) convert(path, from, to string, old, now protoreflect.FieldDescriptor) {
	keys, comment := fmt.Sprintf("from: %s, to: %s", from, to), ""
	switch from + " " + to {
	case "long date":
		keys, comment = "from: epoch, to: date", "or from: epochMillis"
	case "int date":
		d.op(fmt.Sprintf("convert: {field: %s, from: int, to: long}", quote(path)), "")
		keys, comment = "from: epoch, to: date", "or from: epochMillis"
	case "date long":
		keys, comment = "from: date, to: epoch, rounding: seconds", "or to: epochMillis, without rounding"
	case "string date":
		keys = "from: rfc3339, to: date"
	case "date string":
		keys = "from: date, to: rfc3339"
	}
	if _, err := lens.Parse("draft.yaml", []byte("operations:\n  - convert: {field: v, "+keys+"}\n")); err != nil {
		d.remark(fmt.Sprintf("%s: it was of type %s and is of type %s, which no conversion explains: try compute or a hook", path, old.Kind(), now.Kind()))
		return
	}
	// These zeros mean "none" in most protos, and are no value of the other type.
	if !old.HasPresence() && !old.IsList() && (to == "date" || from == "string") && !strings.Contains(path, ".") {
		d.sparse = append(d.sparse, string(old.Name()))
		note := "list it in Sparse if its zero value means none"
		if comment != "" {
			note = comment + "; " + note
		}
		comment = note
	}
	d.op(fmt.Sprintf("convert: {field: %s, %s}", quote(path), keys), comment)
}

// storedAs returns the type of a lens in which package protodoc stores a field or its items, or
// enum, object, bytes, or any for what has no fixed type.
func storedAs(f protoreflect.FieldDescriptor) string {
	switch f.Kind() { //nolint:exhaustive // the rest are messages
	case protoreflect.BoolKind:
		return "bool"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return "int"
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return "long"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "number" // a long, or a decimal for what exceeds it
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "double"
	case protoreflect.StringKind:
		return "string"
	case protoreflect.BytesKind:
		return "bytes"
	case protoreflect.EnumKind:
		return "enum"
	}
	name, ok := strings.CutPrefix(string(f.Message().FullName()), "google.protobuf.")
	if !ok {
		return "object"
	}
	switch name {
	case "Timestamp":
		return "date"
	case "Duration":
		return "string"
	case "BoolValue", "StringValue", "BytesValue", "Int32Value", "Int64Value", "UInt32Value", "UInt64Value", "FloatValue", "DoubleValue":
		// A wrapper is stored as its value.
		return storedAs(f.Message().Fields().ByNumber(1))
	case "Struct", "Value", "ListValue":
		return "any"
	}
	return "object"
}

func isObject(f protoreflect.FieldDescriptor) bool { return storedAs(f) == "object" }

// zero returns the value that a document has for a field that is not set. ok is false for a field
// that is absent then.
func zero(f protoreflect.FieldDescriptor) (value string, ok bool) {
	switch {
	case f.IsMap():
		return "{}", true
	case f.IsList():
		return "[]", true
	case f.HasPresence():
		return "", false
	}
	switch storedAs(f) {
	case "bool":
		return "false", true
	case "int":
		return "0", true
	case "long", "number":
		return "{$numberLong: \"0\"}", true
	case "double":
		return "0.0", true
	case "string":
		return `""`, true
	case "bytes":
		return `{$binary: {base64: "", subType: "00"}}`, true
	case "enum":
		return quote(string(f.Enum().Values().Get(0).Name())), true
	}
	return "", false
}
