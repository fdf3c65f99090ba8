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

// Mapping maps the names of records to the other side, for requests. It returns a
// *transform.MappingError for a name without a counterpart.
type Mapping interface {
	Name(name string) (string, error)
	Parent(parent string) (string, error)
}

// MaxVariables limits the variables of a lens's key, so that their values fit on the stack.
const MaxVariables = 16

// Keys maps the _ids of a lens's kind in both directions. A variable of both forms keeps its value,
// as a text that is valid for its type on either side. A variable of one form is a constant or a
// field of the other side's record. The mapping is one to one by construction: an _id is determined
// by the values of its variables, and each side's values determine the other's.
type Keys struct {
	From, To      *Form
	Variables     []Variable
	FromAt        []int // variable of from -> index into variables
	ToAt          []int
	ByContent     bool // to's _ids do not follow from from's _ids alone
	ByContentDown bool // from's _ids do not follow from to's _ids alone
}

// Variable is a variable of either form.
type Variable struct {
	Name      string
	From, To  scalar.IDType // in the forms, or in the field of the side without the variable; default string
	Constant  string        // of a variable of one form, if field is nil
	OneSided  bool
	Field     edit.Path // of the side without the variable
	KeepField bool
}

// Variable returns a variable of either form.
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

// Digested returns the keys as digests of lenses contain them. The form must stay: controllers of
// two releases compare the digests of one lens.
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

// Way is keys in one direction.
type Way struct {
	*Keys
	Up bool
}

var _ Mapping = Way{}

// Source returns the form of the near side, and where its variables lie in Variables.
func (k Way) Source() (*Form, []int) {
	if k.Up {
		return k.From, k.FromAt
	}
	return k.To, k.ToAt
}

// Target is Source for the far side.
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

// Read sets the values of k.variables from a source _id, and the values of the target's constants.
// It leaves the values of fields unchanged.
func (k Way) Read(id bson.RawValue, as scalar.Reading, values []string) error {
	// Read into the form's order first, then into the order of k.variables.
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

// ReadID is read for a record's _id. Its errors name the _id.
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

// AppendTarget appends the target's _id with these values.
func (k Way) AppendTarget(dst []byte, values []string) (bson.Type, []byte) {
	f, at := k.Target()
	var buf [MaxVariables]string
	for i, slot := range at {
		buf[i] = values[slot]
	}
	return f.AppendTo(dst, buf[:len(at)])
}

// ID maps an _id. Callers must not use it if needsContent.
func (k Way) ID(id bson.RawValue, as scalar.Reading) (bson.RawValue, error) {
	var values [MaxVariables]string
	if err := k.Read(id, as, values[:]); err != nil {
		return bson.RawValue{}, err
	}
	typ, val := k.AppendTarget(nil, values[:])
	return bson.RawValue{Type: typ, Value: val}, nil
}

// Numbers reports whether the target's _ids contain numbers of any type, whose type the record
// keeps.
func (k Way) Numbers() bool {
	f, _ := k.Target()
	return slices.ContainsFunc(f.Parts, func(p idPart) bool { return p.Alone == scalar.IDNumber })
}

// Kept returns the target's _id with the number types that the target's record already has. have is
// that record, or nil.
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

// Named returns an error if the _ids of a side are not names.
func (k Way) Named() error {
	for _, f := range []*Form{k.From, k.To} {
		if !f.Textual() {
			return fmt.Errorf("the records of one version have no names: their _id is %s", f)
		}
	}
	return nil
}

// Name maps the name of a record.
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

// OfContent reports whether v is only in the target's form and a field of the source holds its
// value.
func (k Way) OfContent(v Variable) bool {
	f, _ := k.Target()
	return v.Field != nil && slices.Contains(f.Variables, v.Name)
}

// FieldType returns the type that a variable of one form has in the field of the other side.
func (k *Keys) FieldType(v *Variable) scalar.IDType {
	if slices.Contains(k.To.Variables, v.Name) {
		return v.From
	}
	return v.To
}

// Take refuses a field value that no _id could contain.
func (v *Variable) Take(value string) error {
	if v.From == scalar.IDAny {
		return nil
	}
	if err := CheckValue(v.Name, value); err != nil {
		return err
	}
	return v.check(value)
}

// Varies reports whether the target's _ids have a variable that is not a constant.
func (k Way) Varies() bool {
	_, at := k.Target()
	return slices.ContainsFunc(at, func(slot int) bool {
		v := k.Variables[slot]
		return !v.OneSided || v.Field != nil
	})
}

// Index returns the positions of a form's variables among the key's variables.
func (k *Keys) Index(f *Form) []int {
	at := make([]int, len(f.Variables))
	for i, name := range f.Variables {
		at[i] = slices.IndexFunc(k.Variables, func(v Variable) bool { return v.Name == name })
	}
	return at
}
