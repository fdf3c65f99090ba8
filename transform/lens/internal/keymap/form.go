package keymap

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

// Form is the form of a kind's _ids: a text with variables, one variable of another type than
// string, or a document whose fields have such forms. An _id has the form in exactly one way or not
// at all, and two _ids never have the same values.
type Form struct {
	Written   string // as the lens writes it
	Parts     []idPart
	Document  bool
	Variables []string
	Types     []scalar.IDType // one for each of Variables; "" if none is declared
}

// idPart is the _id or one of its fields.
type idPart struct {
	name    []byte   // of the document's field
	Pattern *Pattern // nil for a constant that is not a string
	// Alone is the type of a part that is a single variable; the value then has this type. Within a
	// text, a variable is the text of its type.
	Alone    scalar.IDType
	constant bson.RawValue
	First    int // index of its first variable in the form
}

// Textual reports whether the _ids are strings, which makes them names.
func (f *Form) Textual() bool { return !f.Document && f.Parts[0].text() }

func (p *idPart) text() bool {
	return p.Pattern != nil && (p.Alone == "" || p.Alone == scalar.IDString)
}

// Pattern returns the form of names, or nil if the _ids are not names.
func (f *Form) Pattern() *Pattern {
	if !f.Textual() {
		return nil
	}
	return f.Parts[0].Pattern
}

// String returns the form for errors. It omits the types of variables, because transform.Conceal
// would take them for values.
func (f *Form) String() string {
	p := &f.Parts[0]
	switch {
	case f.Document:
		names := make([]string, len(f.Parts))
		for i := range f.Parts {
			names[i] = string(f.Parts[i].name)
		}
		return "a document of " + strings.Join(names, ", ")
	case p.text():
		return p.Pattern.Plain
	}
	return fmt.Sprintf("%s as %s", p.Pattern.Plain, p.Alone)
}

// Read sets values, one for each of Variables, from an _id. It returns an error if the _id does not
// have the form. The error refers to the _id as "it".
func (f *Form) Read(id bson.RawValue, as scalar.Reading, values []string) error {
	if !f.Document {
		p := &f.Parts[0]
		if p.text() && id.Type != bson.TypeString {
			return fmt.Errorf("it is %s (%s), not a string of the form %s", edit.Show(id.Type, id.Value), edit.TypeName(id.Type), p.Pattern.Plain)
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
	if !slices.EqualFunc(elems, f.Parts, func(e bson.RawElement, p idPart) bool { return e.Key() == string(p.name) }) {
		return fmt.Errorf("it is not %s, in this order and without other fields", f)
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		if err := p.read(elems[i].Value(), as, values); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (p *idPart) read(v bson.RawValue, as scalar.Reading, values []string) error {
	if p.Pattern == nil {
		same := v.Type == p.constant.Type && string(v.Value) == string(p.constant.Value)
		// A record.Key has lost the type of a number.
		if as == scalar.ReadKey {
			a, err := record.KeyOf(v)
			b, errB := record.KeyOf(p.constant)
			same = err == nil && errB == nil && a == b
		}
		if !same {
			return fmt.Errorf("it is not the constant of type %s from the lens", edit.TypeName(p.constant.Type))
		}
		return nil
	}
	if !p.text() {
		text, err := p.Alone.Read(v, as)
		if err != nil {
			return fmt.Errorf("it %w", err)
		}
		values[p.First] = text
		return nil
	}
	if v.Type != bson.TypeString {
		return fmt.Errorf("it is of type %s, not %s", edit.TypeName(v.Type), scalar.IDString)
	}
	// The third index keeps match from writing beyond this part's values.
	n := len(p.Pattern.variables)
	return p.Pattern.match(scalar.StringOf(v.Value), values[p.First:p.First+n:p.First+n])
}

// AppendTo appends the _id with these values to dst, and returns its type. values has one entry for
// each of Variables.
func (f *Form) AppendTo(dst []byte, values []string) (bson.Type, []byte) {
	if !f.Document {
		return f.Parts[0].append(dst, values)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range f.Parts {
		p := &f.Parts[i]
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
	case p.Pattern == nil:
		return p.constant.Type, append(dst, p.constant.Value...)
	case !p.text():
		return p.Alone.AppendTo(dst, values[p.First])
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = p.Pattern.AppendName(dst, values[p.First:p.First+len(p.Pattern.variables)], len(p.Pattern.Segments))
	dst = append(dst, 0)
	edit.PutLength(dst[start:], len(dst)-start-4)
	return bson.TypeString, dst
}

// Value returns the _id with these values, one for each of Variables.
func (f *Form) Value(values []string) bson.RawValue {
	typ, val := f.AppendTo(nil, values)
	return bson.RawValue{Type: typ, Value: val}
}

// Key returns the record.Key of the _id with these values, one for each of Variables.
func (f *Form) Key(values []string) (record.Key, error) {
	// Names are the frequent case. This avoids a conversion through BSON.
	if p := f.Pattern(); p != nil {
		return edit.StringKey(func(dst []byte) []byte { return p.AppendName(dst, values, len(p.Segments)) }), nil
	}
	return record.KeyOf(f.Value(values))
}

// PartOf returns the part that contains a variable, given by its index in Variables.
func (f *Form) PartOf(variable int) *idPart {
	at := slices.IndexFunc(f.Parts, func(p idPart) bool { return p.Pattern != nil && variable < p.First+len(p.Pattern.variables) })
	return &f.Parts[at]
}

// TypeOf returns the type of a variable, given by its index in Variables: string if none is
// declared.
func (f *Form) TypeOf(variable int) scalar.IDType {
	return cmp.Or(f.Types[variable], scalar.IDString)
}

// Add adds a part to the form, whose text may contain variables. name is the document's field; nil:
// the part is the whole _id. The error is about the text.
func (f *Form) Add(name []byte, text string) error {
	if text == "" && name != nil {
		return errors.New("it is empty: want a variable such as {id}, or a constant")
	}
	pattern, err := ParsePattern(text)
	if err != nil {
		return err
	}
	part := idPart{name: name, Pattern: pattern, First: len(f.Variables)}
	if len(pattern.Segments) == 1 && len(pattern.variables) == 1 && pattern.Plain == "{"+pattern.variables[0]+"}" {
		part.Alone = pattern.Types[0]
	}
	for i, v := range pattern.variables {
		// Two places with one variable could contradict each other.
		if slices.Contains(f.Variables, v) {
			return fmt.Errorf("the variable {%s} is there twice", v)
		}
		if pattern.Types[i] == scalar.IDAny && part.Alone != scalar.IDAny {
			return fmt.Errorf("{%s} of type any cannot stand within a text, and cannot be read back from it: declare its type (%s), or let it stand alone", v, scalar.JoinIDTypes(slices.DeleteFunc(slices.Clone(scalar.IDTypes), func(t scalar.IDType) bool { return t == scalar.IDAny })))
		}
		f.Variables, f.Types = append(f.Variables, v), append(f.Types, pattern.Types[i])
	}
	f.Parts = append(f.Parts, part)
	return nil
}

// AddConstant adds a field of the document that has the value v in every _id.
func (f *Form) AddConstant(name []byte, v bson.RawValue) {
	f.Parts = append(f.Parts, idPart{name: name, constant: v, First: len(f.Variables)})
}
