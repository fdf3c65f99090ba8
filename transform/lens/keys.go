package lens

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

// keyMapping maps the names of records to the other side, for requests. It returns a
// *transform.MappingError for a name without a counterpart.
type keyMapping interface {
	Name(name string) (string, error)
	Parent(parent string) (string, error)
}

// maxVariables limits the variables of a lens's key, so that their values fit on the stack.
const maxVariables = 16

// keys maps the _ids of a lens's kind in both directions. A variable of both forms keeps its value,
// as a text that is valid for its type on either side. A variable of one form is a constant or a
// field of the other side's record. The mapping is one to one by construction: an _id is determined
// by the values of its variables, and each side's values determine the other's.
type keys struct {
	from, to      *idForm
	variables     []keyVariable
	fromAt        []int // variable of from -> index into variables
	toAt          []int
	byContent     bool // to's _ids do not follow from from's _ids alone
	byContentDown bool // from's _ids do not follow from to's _ids alone
}

// keyVariable is a variable of either form.
type keyVariable struct {
	name      string
	from, to  scalar.IDType // in the forms, or in the field of the side without the variable; default string
	constant  string        // of a variable of one form, if field is nil
	oneSided  bool
	field     edit.Path // of the side without the variable
	keepField bool
}

// variable returns a variable of either form.
func (k *keys) variable(name string) *keyVariable {
	return &k.variables[slices.IndexFunc(k.variables, func(v keyVariable) bool { return v.name == name })]
}

// check refuses a value that one of the sides cannot write.
func (v *keyVariable) check(value string) error {
	// A value that only one side accepts could not come back.
	for _, t := range []scalar.IDType{v.from, v.to} {
		if err := t.Check(value); err != nil {
			return fmt.Errorf("{%s} %w", v.name, err)
		}
	}
	return nil
}

// digested returns the keys as digests of lenses contain them. The form must stay: controllers of
// two releases compare the digests of one lens.
func (k *keys) digested() string {
	type variable struct {
		name      string
		from, to  scalar.IDType
		constant  string
		oneSided  bool
		field     [][]byte
		keepField bool
	}
	var vs []variable
	for _, v := range k.variables {
		vs = append(vs, variable{v.name, v.from, v.to, v.constant, v.oneSided, v.field, v.keepField})
	}
	return fmt.Sprintf("%s %s %v", k.from.written, k.to.written, vs)
}

// keyWay is keys in one direction.
type keyWay struct {
	*keys
	up bool
}

var _ keyMapping = keyWay{}

func (k keyWay) source() (*idForm, []int) {
	if k.up {
		return k.from, k.fromAt
	}
	return k.to, k.toAt
}

func (k keyWay) target() (*idForm, []int) { return keyWay{k.keys, !k.up}.source() }

// needsContent reports whether the target's _ids depend on more than the source's _ids.
func (k keyWay) needsContent() bool {
	if k.up {
		return k.byContent
	}
	return k.byContentDown
}

// hasFields reports whether a part of an _id is a field on the other side.
func (k *keys) hasFields() bool {
	return slices.ContainsFunc(k.variables, func(v keyVariable) bool { return v.field != nil })
}

// read sets the values of k.variables from a source _id, and the values of the target's constants.
// It leaves the values of fields unchanged.
func (k keyWay) read(id bson.RawValue, as scalar.Reading, values []string) error {
	// Read into the form's order first, then into the order of k.variables.
	f, at := k.source()
	var buf [maxVariables]string
	if err := f.read(id, as, buf[:len(at)]); err != nil {
		return err
	}
	for i := range k.variables {
		if v := &k.variables[i]; v.oneSided && v.field == nil {
			values[i] = v.constant
		}
	}
	for i, slot := range at {
		// A record with another value than the constant has no counterpart.
		v := &k.variables[slot]
		if v.oneSided && v.field == nil && buf[i] != v.constant {
			return fmt.Errorf("%s has %s %q, and the other version has records of %s %q only", shownID(id), v.name, shortened(buf[i]), v.name, v.constant)
		}
		// The value must be valid on the other side as well.
		if err := v.check(buf[i]); err != nil {
			return err
		}
		values[slot] = buf[i]
	}
	return nil
}

// readID is read for a record's _id. Its errors name the _id.
func (k keyWay) readID(id bson.RawValue, as scalar.Reading, values []string) error {
	err := k.read(id, as, values)
	if f, _ := k.source(); err == nil || f.textual() && id.Type == bson.TypeString {
		return err // the error quotes the name
	}
	return fmt.Errorf("the _id: %w", err)
}

// shownID returns an _id for an error.
func shownID(id bson.RawValue) string {
	if id.Type == bson.TypeString {
		return strconv.Quote(shortened(scalar.StringOf(id.Value)))
	}
	return "the _id"
}

// appendTarget appends the target's _id with these values.
func (k keyWay) appendTarget(dst []byte, values []string) (bson.Type, []byte) {
	f, at := k.target()
	var buf [maxVariables]string
	for i, slot := range at {
		buf[i] = values[slot]
	}
	return f.append(dst, buf[:len(at)])
}

// id maps an _id. Callers must not use it if needsContent.
func (k keyWay) id(id bson.RawValue, as scalar.Reading) (bson.RawValue, error) {
	var values [maxVariables]string
	if err := k.read(id, as, values[:]); err != nil {
		return bson.RawValue{}, err
	}
	typ, val := k.appendTarget(nil, values[:])
	return bson.RawValue{Type: typ, Value: val}, nil
}

// numbers reports whether the target's _ids contain numbers of any type, whose type the record
// keeps.
func (k keyWay) numbers() bool {
	f, _ := k.target()
	return slices.ContainsFunc(f.parts, func(p idPart) bool { return p.alone == scalar.IDNumber })
}

// kept returns the target's _id with the number types that the target's record already has. have is
// that record, or nil.
func (k keyWay) kept(to bson.RawValue, have bson.Raw) bson.RawValue {
	if have == nil || !k.numbers() {
		return to
	}
	v, ok := edit.LookupRaw(have, edit.Path{edit.FieldID})
	if !ok {
		return to
	}
	// Take the target's _id only if it is the same key, and converts back to the source.
	a, errA := record.KeyOf(v)
	b, errB := record.KeyOf(to)
	var values [maxVariables]string
	if errA != nil || errB != nil || a != b || (keyWay{k.keys, !k.up}).read(v, scalar.ReadStored, values[:]) != nil {
		return to
	}
	return v
}

// named returns an error if the _ids of a side are not names.
func (k keyWay) named() error {
	for _, f := range []*idForm{k.from, k.to} {
		if !f.textual() {
			return fmt.Errorf("the records of one version have no names: their _id is %s", f)
		}
	}
	return nil
}

// Name maps the name of a record.
func (k keyWay) Name(name string) (string, error) {
	if err := k.named(); err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	for _, v := range k.variables {
		// A request has only the name, not the record.
		if k.ofContent(v) {
			return "", &transform.MappingError{Field: name, Reason: fmt.Sprintf("{%s} of the other version's name is the field %s of the record, not part of its name here", v.name, v.field)}
		}
	}
	out, err := k.id(record.StringKey(name).Value(), scalar.ReadKey)
	if err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	return scalar.StringOf(out.Value), nil
}

// ofContent reports whether v is only in the target's form and a field of the source holds its
// value.
func (k keyWay) ofContent(v keyVariable) bool {
	f, _ := k.target()
	return v.field != nil && slices.Contains(f.variables, v.name)
}

// fieldType returns the type that a variable of one form has in the field of the other side.
func (k *keys) fieldType(v *keyVariable) scalar.IDType {
	if slices.Contains(k.to.variables, v.name) {
		return v.from
	}
	return v.to
}

// take refuses a field value that no _id could contain.
func (v *keyVariable) take(value string) error {
	if v.from == scalar.IDAny {
		return nil
	}
	if err := checkValue(v.name, value); err != nil {
		return err
	}
	return v.check(value)
}

// varies reports whether the target's _ids have a variable that is not a constant.
func (k keyWay) varies() bool {
	_, at := k.target()
	return slices.ContainsFunc(at, func(slot int) bool {
		v := k.variables[slot]
		return !v.oneSided || v.field != nil
	})
}

// index returns the positions of a form's variables among the key's variables.
func (k *keys) index(f *idForm) []int {
	at := make([]int, len(f.variables))
	for i, name := range f.variables {
		at[i] = slices.IndexFunc(k.variables, func(v keyVariable) bool { return v.name == name })
	}
	return at
}
