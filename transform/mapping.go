package transform

import "fmt"

// Mapping defines how the names, fields and values of one version's kind appear in the
// other, in one direction and without reading any record, so that a request in terms of
// the one version can be turned into a request in terms of the other. A lens has one for
// each direction; so has a typed transformer. Its methods may be called concurrently.
//
// What cannot be expressed is a *MappingError that names the field: a mapping never
// answers with something that only nearly means the same.
type Mapping interface {
	// Name maps the name of a record.
	Name(name string) (string, error)
	// Parent maps the beginning of names, up to a slash that is not part of it: the
	// collection that a list request asks for. Empty stays empty.
	Parent(parent string) (string, error)
	// Field maps the dotted path of a field to the paths that hold the same on the other
	// side, at least one: more where a field was split. Masks are mapped with it. A part
	// "*" stands for any item of a list or entry of a map.
	Field(path string) ([]string, error)
	// Compare maps one comparison to a conjunction of comparisons.
	Compare(c Condition) ([]Condition, error)
	// Order maps a field to the field that sorts the same.
	Order(path string) (string, error)
}

// ConjunctionMapping is a Mapping that can map some comparisons only together: those of
// all fields that were joined into one.
type ConjunctionMapping interface {
	Mapping
	// CompareAll maps a conjunction of comparisons to another.
	CompareAll(cs []Condition) ([]Condition, error)
}

// CarryingMapping is a Mapping that can tell which fields are the same on both sides.
type CarryingMapping interface {
	Mapping
	// Carried maps the path of a field whose values are the same on the other side, absent ones
	// included. ok is false for every other field.
	Carried(path string) (to string, ok bool)
}

// OrderedMapping is a Mapping that can tell whether names sort the same on both sides.
type OrderedMapping interface {
	Mapping
	// KeepsOrder reports whether it is certain that the names under a parent, empty for all
	// there are, sort alike on both sides.
	KeepsOrder(parent string) bool
}

// KeepsOrder reports whether it is certain that names under a parent sort alike on both
// sides of a mapping. One that cannot tell is not taken to be ordered.
func KeepsOrder(m Mapping, parent string) bool {
	switch m := m.(type) {
	case Identity: // not a method: it would be that of every mapping which embeds it
		return true
	case OrderedMapping:
		return m.KeepsOrder(parent)
	default:
		return false
	}
}

// CompareAll maps a conjunction: as a whole where m can, else one by one.
func CompareAll(m Mapping, cs []Condition) ([]Condition, error) {
	if c, ok := m.(ConjunctionMapping); ok {
		return c.CompareAll(cs)
	}
	var out []Condition
	for _, c := range cs {
		mapped, err := m.Compare(c)
		if err != nil {
			return nil, err
		}
		out = append(out, mapped...)
	}
	return out, nil
}

// Condition compares the field at a dotted path with values: one value, for OpIn any
// number, for OpHas none. Values are of type string, int64, uint64, float64, bool,
// []byte, time.Time or nil.
//
// Numbers are compared by what they are worth, whatever their types; nil is equal to
// null and to a field that is not there; an objectId is compared as its 24 hexadecimal
// digits. Values of other types are never equal, nor less or greater. OpIn without
// values matches nothing. Where a path has a part "*", one item that meets the condition
// is enough.
type Condition struct {
	Path   string
	Op     Operator
	Values []any
}

// Operator is how a Condition compares. There is no "not equal": it is the negation of
// OpEqual, which differs from it where a comparison maps to several.
type Operator string

// The operators.
const (
	OpEqual        Operator = "=="
	OpLess         Operator = "<"
	OpLessEqual    Operator = "<="
	OpGreater      Operator = ">"
	OpGreaterEqual Operator = ">="
	OpIn           Operator = "in"         // equal to one of Values
	OpContains     Operator = "contains"   // a string holds Values[0], a list has it as an item
	OpPrefix       Operator = "startsWith" // a string begins with Values[0]
	OpHas          Operator = "has"        // the field is there
)

// MappingError reports why a request cannot be expressed in the other version.
type MappingError struct {
	Field  string // as the request names it; a name or parent for Name and Parent
	Reason string
}

func (e *MappingError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Identity maps everything to itself.
type Identity struct{}

var _ Mapping = Identity{}

// Name returns name.
func (Identity) Name(name string) (string, error) { return name, nil }

// Parent returns parent.
func (Identity) Parent(parent string) (string, error) { return parent, nil }

// Field returns path alone.
func (Identity) Field(path string) ([]string, error) { return []string{path}, nil }

// Compare returns c alone.
func (Identity) Compare(c Condition) ([]Condition, error) { return []Condition{c}, nil }

// Order returns path.
func (Identity) Order(path string) (string, error) { return path, nil }
