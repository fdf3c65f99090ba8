package keymap

import (
	"fmt"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Mapping maps the names and parents of requests to the other side, as transform.Mapping does. It
// returns a *transform.MappingError for a name without a counterpart.
type Mapping interface {
	Name(name string) (string, error)
	Parent(parent string) (string, error)
}

// MaxVariables is the maximum number of variables of a lens's key. With this limit their values fit
// on the stack.
const MaxVariables = 16

// Keys maps the _ids of a lens's kind in both directions. From is the form of the old side, To the
// form of the new side. A variable of both forms keeps its value, as a text that is valid for its
// type on either side. A variable of one form is a constant, or a field of the other side's record.
// The mapping is one to one by construction: the values of its variables determine an _id, and each
// side's values determine the other's.
type Keys struct {
	From, To      *Form
	Variables     []Variable
	FromAt        []int // for each variable of From, its index in Variables; ToAt likewise
	ToAt          []int
	ByContent     bool // an _id of To needs fields of the old record
	ByContentDown bool // an _id of From needs fields of the new record
}

// Variable is a variable of From, To or both. OneSided means that only one of them has it.
// KeepField means that both sides' records have Field.
type Variable struct {
	Name      string
	From, To  scalar.IDType // type in each form, or in Field on the side without the variable; empty: string
	Constant  string        // of a one-sided variable whose Field is nil
	OneSided  bool
	Field     edit.Path // nil: the variable is no field
	KeepField bool
}

// Variable returns the variable with a name. It panics if neither form has it.
func (k *Keys) Variable(name string) *Variable {
	return &k.Variables[slices.IndexFunc(k.Variables, func(v Variable) bool { return v.Name == name })]
}

// check refuses a value that one of the sides cannot write.
func (v *Variable) check(value string) error {
	// A value that only one side accepts could not come back.
	for _, t := range []scalar.IDType{v.From, v.To} {
		if err := t.Check(value); err != nil {
			return fmt.Errorf("{%s} %w", v.Name, err)
		}
	}
	return nil
}

// Digested returns a text of the keys for the digest of a lens. Its format must not change, because
// controllers of two releases compare the digests of one lens.
func (k *Keys) Digested() string {
	type variable struct {
		name      string
		from, to  scalar.IDType
		constant  string
		oneSided  bool
		field     [][]byte
		keepField bool
	}
	var vs []variable
	for _, v := range k.Variables {
		vs = append(vs, variable{v.Name, v.From, v.To, v.Constant, v.OneSided, v.Field, v.KeepField})
	}
	return fmt.Sprintf("%s %s %v", k.From.Written, k.To.Written, vs)
}

// Way is Keys in one direction: from old to new if Up is true, else from new to old. The source is
// the side to map from, and the target the side to map to.
type Way struct {
	*Keys
	Up bool
}

var _ Mapping = Way{}

// Source returns the form of the source, and the index in Variables of each of its variables.
func (k Way) Source() (*Form, []int) {
	if k.Up {
		return k.From, k.FromAt
	}
	return k.To, k.ToAt
}

// Target returns the same for the target.
func (k Way) Target() (*Form, []int) { return Way{k.Keys, !k.Up}.Source() }

// needsContent reports whether the target's _ids depend on more than the source's _ids.
func (k Way) needsContent() bool {
	if k.Up {
		return k.ByContent
	}
	return k.ByContentDown
}

// HasFields reports whether a part of an _id is a field on the other side.
func (k *Keys) HasFields() bool {
	return slices.ContainsFunc(k.Variables, func(v Variable) bool { return v.Field != nil })
}

// Read sets values, one for each of Variables, from an _id of the source. It also sets the
// constants of the target. It leaves the values of fields unchanged. It returns an error for an _id
// without a counterpart.
func (k Way) Read(id bson.RawValue, as scalar.Reading, values []string) error {
	// Read into the form's order first, then into the order of k.Variables.
	f, at := k.Source()
	var buf [MaxVariables]string
	if err := f.Read(id, as, buf[:len(at)]); err != nil {
		return err
	}
	for i := range k.Variables {
		if v := &k.Variables[i]; v.OneSided && v.Field == nil {
			values[i] = v.Constant
		}
	}
	for i, slot := range at {
		// A record with another value than the constant has no counterpart.
		v := &k.Variables[slot]
		if v.OneSided && v.Field == nil && buf[i] != v.Constant {
			return fmt.Errorf("%s has %s %q, and the other version has records of %s %q only", shownID(id), v.Name, Shortened(buf[i]), v.Name, v.Constant)
		}
		// The value must be valid on the other side as well.
		if err := v.check(buf[i]); err != nil {
			return err
		}
		values[slot] = buf[i]
	}
	return nil
}

// ReadID is Read for a record's _id. Its errors name the _id.
func (k Way) ReadID(id bson.RawValue, as scalar.Reading, values []string) error {
	err := k.Read(id, as, values)
	if f, _ := k.Source(); err == nil || f.Textual() && id.Type == bson.TypeString {
		return err // the error quotes the name
	}
	return fmt.Errorf("the _id: %w", err)
}

// shownID returns an _id for an error.
func shownID(id bson.RawValue) string {
	if id.Type == bson.TypeString {
		return strconv.Quote(Shortened(scalar.StringOf(id.Value)))
	}
	return "the _id"
}

// AppendTarget appends the target's _id with these values, one for each of Variables.
func (k Way) AppendTarget(dst []byte, values []string) (bson.Type, []byte) {
	f, at := k.Target()
	var buf [MaxVariables]string
	for i, slot := range at {
		buf[i] = values[slot]
	}
	return f.AppendTo(dst, buf[:len(at)])
}

// ID maps an _id of the source to an _id of the target. It must not be used if the target's _id
// needs fields of the record (ByContent, ByContentDown); see Identity.
func (k Way) ID(id bson.RawValue, as scalar.Reading) (bson.RawValue, error) {
	var values [MaxVariables]string
	if err := k.Read(id, as, values[:]); err != nil {
		return bson.RawValue{}, err
	}
	typ, val := k.AppendTarget(nil, values[:])
	return bson.RawValue{Type: typ, Value: val}, nil
}

// Numbers reports whether the target's _ids contain numbers of any BSON type. A record keeps the
// type that its number has.
func (k Way) Numbers() bool {
	f, _ := k.Target()
	return slices.ContainsFunc(f.Parts, func(p idPart) bool { return p.Alone == scalar.IDNumber })
}

// Kept returns the _id to, with the number types of have, the target's present record or nil. It
// returns to unchanged if have has another _id.
func (k Way) Kept(to bson.RawValue, have bson.Raw) bson.RawValue {
	if have == nil || !k.Numbers() {
		return to
	}
	v, ok := edit.LookupRaw(have, edit.Path{edit.FieldID})
	if !ok {
		return to
	}
	// Take the target's _id only if it is the same key, and converts back to the source.
	a, errA := record.KeyOf(v)
	b, errB := record.KeyOf(to)
	var values [MaxVariables]string
	if errA != nil || errB != nil || a != b || (Way{k.Keys, !k.Up}).Read(v, scalar.ReadStored, values[:]) != nil {
		return to
	}
	return v
}

// Named returns an error unless the _ids of both sides are names, that is, strings.
func (k Way) Named() error {
	for _, f := range []*Form{k.From, k.To} {
		if !f.Textual() {
			return fmt.Errorf("the records of one version have no names: their _id is %s", f)
		}
	}
	return nil
}

// Name maps the name of a record. Errors are *transform.MappingError.
func (k Way) Name(name string) (string, error) {
	if err := k.Named(); err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	for _, v := range k.Variables {
		// A request has only the name, not the record.
		if k.OfContent(v) {
			return "", &transform.MappingError{Field: name, Reason: fmt.Sprintf("{%s} of the other version's name is the field %s of the record, not part of its name here", v.Name, v.Field)}
		}
	}
	out, err := k.ID(record.StringKey(name).Value(), scalar.ReadKey)
	if err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	return scalar.StringOf(out.Value), nil
}

// OfContent reports whether the target's form has v, and its value is a field of the source's
// record.
func (k Way) OfContent(v Variable) bool {
	f, _ := k.Target()
	return v.Field != nil && slices.Contains(f.Variables, v.Name)
}

// FieldType returns the type of v in its Field, on the side whose form does not have v.
func (k *Keys) FieldType(v *Variable) scalar.IDType {
	if slices.Contains(k.To.Variables, v.Name) {
		return v.From
	}
	return v.To
}

// Take returns an error if no _id could contain the value of v's Field.
func (v *Variable) Take(value string) error {
	if v.From == scalar.IDAny {
		return nil
	}
	if err := CheckValue(v.Name, value); err != nil {
		return err
	}
	return v.check(value)
}

// Varies reports whether two _ids of the target can differ, because a variable of theirs is no
// constant.
func (k Way) Varies() bool {
	_, at := k.Target()
	return slices.ContainsFunc(at, func(slot int) bool {
		v := k.Variables[slot]
		return !v.OneSided || v.Field != nil
	})
}

// Index returns, for each variable of f, its index in Variables, or -1 if it is missing there.
func (k *Keys) Index(f *Form) []int {
	at := make([]int, len(f.Variables))
	for i, name := range f.Variables {
		at[i] = slices.IndexFunc(k.Variables, func(v Variable) bool { return v.Name == name })
	}
	return at
}
