package lens

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// idForm is the form of a kind's _ids: a text with variables, one variable of another type than
// string, or a document whose fields have such forms. So an _id has the form in exactly one way or
// not at all, and two _ids never have the same values.
type idForm struct {
	written   string // as the lens writes it
	parts     []idPart
	document  bool
	variables []string
	types     []scalar.IDType // of variables; empty if none is declared
}

// idPart is the _id or one of its fields.
type idPart struct {
	name    []byte   // of the document's field
	pattern *Pattern // nil for a constant that is not a string
	// alone is the type of a part that is a single variable; the value then has this type. Within a
	// text, a variable is the text of its type.
	alone    scalar.IDType
	constant bson.RawValue
	first    int // index of its first variable in the form
}

// textual reports whether the _ids are strings, and so names.
func (f *idForm) textual() bool { return !f.document && f.parts[0].text() }

func (p *idPart) text() bool {
	return p.pattern != nil && (p.alone == "" || p.alone == scalar.IDString)
}

// pattern returns the form of names, or nil if the _ids are not names.
func (f *idForm) pattern() *Pattern {
	if !f.textual() {
		return nil
	}
	return f.parts[0].pattern
}

// String returns the form for errors. It omits types, because Conceal would take them for values.
func (f *idForm) String() string {
	p := &f.parts[0]
	switch {
	case f.document:
		names := make([]string, len(f.parts))
		for i := range f.parts {
			names[i] = string(f.parts[i].name)
		}
		return "a document of " + strings.Join(names, ", ")
	case p.text():
		return p.pattern.plain
	}
	return fmt.Sprintf("%s as %s", p.pattern.plain, p.alone)
}

// read sets the values of an _id's variables. Its errors refer to the _id as "it".
func (f *idForm) read(id bson.RawValue, as scalar.Reading, values []string) error {
	if !f.document {
		p := &f.parts[0]
		if p.text() && id.Type != bson.TypeString {
			return fmt.Errorf("it is %s (%s), not a string of the form %s", edit.Show(id.Type, id.Value), edit.TypeName(id.Type), p.pattern.plain)
		}
		return p.read(id, as, values)
	}
	if id.Type != bson.TypeEmbeddedDocument {
		return fmt.Errorf("it is of type %s, not %s", edit.TypeName(id.Type), f)
	}
	elems, err := bson.Raw(id.Value).Elements()
	if err != nil {
		return err
	}
	// The database compares documents field by field in order, so another order is another _id.
	if !slices.EqualFunc(elems, f.parts, func(e bson.RawElement, p idPart) bool { return e.Key() == string(p.name) }) {
		return fmt.Errorf("it is not %s, in this order and without others", f)
	}
	for i := range f.parts {
		p := &f.parts[i]
		if err := p.read(elems[i].Value(), as, values); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (p *idPart) read(v bson.RawValue, as scalar.Reading, values []string) error {
	if p.pattern == nil {
		same := v.Type == p.constant.Type && string(v.Value) == string(p.constant.Value)
		// A record.Key has lost the type of a number.
		if as == scalar.ReadKey {
			a, err := record.KeyOf(v)
			b, errB := record.KeyOf(p.constant)
			same = err == nil && errB == nil && a == b
		}
		if !same {
			return fmt.Errorf("it is not the constant of type %s that the lens has there", edit.TypeName(p.constant.Type))
		}
		return nil
	}
	if !p.text() {
		text, err := p.alone.Read(v, as)
		if err != nil {
			return fmt.Errorf("it %w", err)
		}
		values[p.first] = text
		return nil
	}
	if v.Type != bson.TypeString {
		return fmt.Errorf("it is of type %s, not %s", edit.TypeName(v.Type), scalar.IDString)
	}
	// The third index keeps match from writing beyond this part's values.
	n := len(p.pattern.variables)
	return p.pattern.match(scalar.StringOf(v.Value), values[p.first:p.first+n:p.first+n])
}

// append appends the _id with these values.
func (f *idForm) append(dst []byte, values []string) (bson.Type, []byte) {
	if !f.document {
		return f.parts[0].append(dst, values)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range f.parts {
		p := &f.parts[i]
		at := len(dst)
		dst = append(append(append(dst, 0), p.name...), 0)
		var typ bson.Type
		typ, dst = p.append(dst, values)
		// The type comes before the value, and is known only after appending it.
		dst[at] = byte(typ)
	}
	dst = append(dst, 0)
	edit.PutLength(dst[start:], len(dst)-start)
	return bson.TypeEmbeddedDocument, dst
}

func (p *idPart) append(dst []byte, values []string) (bson.Type, []byte) {
	switch {
	case p.pattern == nil:
		return p.constant.Type, append(dst, p.constant.Value...)
	case !p.text():
		return p.alone.AppendTo(dst, values[p.first])
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = p.pattern.appendName(dst, values[p.first:p.first+len(p.pattern.variables)], len(p.pattern.segments))
	dst = append(dst, 0)
	edit.PutLength(dst[start:], len(dst)-start-4)
	return bson.TypeString, dst
}

// value returns the _id with these values.
func (f *idForm) value(values []string) bson.RawValue {
	typ, val := f.append(nil, values)
	return bson.RawValue{Type: typ, Value: val}
}

// key returns the key of the _id with these values.
func (f *idForm) key(values []string) (record.Key, error) {
	// Names are the frequent case. This avoids a conversion through BSON.
	if p := f.pattern(); p != nil {
		return edit.StringKey(func(dst []byte) []byte { return p.appendName(dst, values, len(p.segments)) }), nil
	}
	return record.KeyOf(f.value(values))
}

// partOf returns the part that contains a variable.
func (f *idForm) partOf(variable int) *idPart {
	at := slices.IndexFunc(f.parts, func(p idPart) bool { return p.pattern != nil && variable < p.first+len(p.pattern.variables) })
	return &f.parts[at]
}

// typeOf returns the type of a variable, string if none is declared.
func (f *idForm) typeOf(variable int) scalar.IDType {
	return cmp.Or(f.types[variable], scalar.IDString)
}

// add adds a part whose text may contain variables. name is the document's field, or nil.
func (f *idForm) add(name []byte, text string) error {
	if text == "" && name != nil {
		return errors.New("it is empty: want a variable such as {id}, or a constant")
	}
	pattern, err := ParsePattern(text)
	if err != nil {
		return err
	}
	part := idPart{name: name, pattern: pattern, first: len(f.variables)}
	if len(pattern.segments) == 1 && len(pattern.variables) == 1 && pattern.plain == "{"+pattern.variables[0]+"}" {
		part.alone = pattern.types[0]
	}
	for i, v := range pattern.variables {
		// Two places with one variable could contradict each other.
		if slices.Contains(f.variables, v) {
			return fmt.Errorf("the variable {%s} is there twice", v)
		}
		if pattern.types[i] == scalar.IDAny && part.alone != scalar.IDAny {
			return fmt.Errorf("{%s} of type any cannot stand within a text, from which it could not be read back: say which type it has (%s), or let it stand alone", v, scalar.JoinIDTypes(slices.DeleteFunc(slices.Clone(scalar.IDTypes), func(t scalar.IDType) bool { return t == scalar.IDAny })))
		}
		f.variables, f.types = append(f.variables, v), append(f.types, pattern.types[i])
	}
	f.parts = append(f.parts, part)
	return nil
}

// addConstant adds a field of the document that has the same value in every _id.
func (f *idForm) addConstant(name []byte, v bson.RawValue) {
	f.parts = append(f.parts, idPart{name: name, constant: v, first: len(f.variables)})
}
