package transform

import "fmt"

// Mapping translates names, fields and conditions of one version's kind to the other version, in
// one direction and without reading a record. A server uses it to serve a request in terms of one
// version from data of the other. Lenses and typed transformers have one Mapping for each
// direction. Its methods are safe for concurrent use.
//
// Each method returns a *MappingError that names the field if the other version cannot express the
// request. A mapping never returns an approximation.
type Mapping interface {
	// Name maps the name of a record.
	Name(name string) (string, error)
	// Parent maps a prefix of names: the collection of a list request, without its final slash. It
	// maps "" to "".
	Parent(parent string) (string, error)
	// Field maps the dotted path of a field to the paths with the same content on the other side.
	// It returns at least one path, and several if the field is split. Field masks are mapped with
	// it. A part "*" stands for any item of a list or entry of a map.
	Field(path string) ([]string, error)
	// Compare maps one comparison to a conjunction of comparisons.
	Compare(c Condition) ([]Condition, error)
	// Order maps a field to the field with the same sort order.
	Order(path string) (string, error)
}

// ConjunctionMapping is a Mapping that maps some comparisons only together, such as comparisons of
// all fields that a lens joins into one.
type ConjunctionMapping interface {
	Mapping
	// CompareAll maps a conjunction of comparisons to another.
	CompareAll(cs []Condition) ([]Condition, error)
}

// CarryingMapping is a Mapping that knows which fields are equal on both sides.
type CarryingMapping interface {
	Mapping
	// Carried returns the path of the equal field on the other side. Equal means that every value
	// is the same, and that both fields are absent together. ok is false for every other field.
	Carried(path string) (to string, ok bool)
}

// OrderedMapping is a Mapping that knows whether names sort the same on both sides.
type OrderedMapping interface {
	Mapping
	// KeepsOrder reports whether the names under a parent certainly sort the same on both sides. An
	// empty parent means all names.
	KeepsOrder(parent string) bool
}

// KeepsOrder reports whether the names under a parent certainly sort the same on both sides of m.
// It returns false for a mapping that does not know.
func KeepsOrder(m Mapping, parent string) bool {
	switch m := m.(type) {
	case Identity: // not a method: types that embed Identity would inherit it
		return true
	case OrderedMapping:
		return m.KeepsOrder(parent)
	default:
		return false
	}
}

// CompareAll maps a conjunction: as a whole if m is a ConjunctionMapping, else one comparison at a
// time.
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

// Condition compares the field at a dotted path with values: one value for most operators, any
// number for OpIn, none for OpHas. Values have the type string, int64, uint64, float64, bool,
// []byte, time.Time or nil.
//
// Numbers compare by numeric value, whatever their types. nil equals null and an absent field. An
// objectId compares as its 24 hexadecimal digits. Values of other types are never equal, less or
// greater. OpIn without values matches nothing. If a path has a part "*", one matching item is
// enough.
type Condition struct {
	Path   string
	Op     Operator
	Values []any
}

// Operator is the comparison of a Condition. There is no "not equal". Callers negate OpEqual
// instead, because one comparison may map to several and only the negation of all of them is right.
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
	OpHas          Operator = "has"        // the field is present
)

// MappingError is the reason why the other version cannot express a request.
type MappingError struct {
	Field  string // as in the request; the name or parent for Name and Parent
	Reason string
}

func (e *MappingError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Identity is the Mapping that maps everything to itself.
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
