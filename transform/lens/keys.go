package lens

import (
	"fmt"
	"slices"

	"dbcontroller.dev/transform"
)

// keyMapping maps the names of records to the other side, for requests. What it cannot
// map is a *transform.MappingError.
type keyMapping interface {
	Name(name string) (string, error)
	Parent(parent string) (string, error)
}

// maxVariables bounds the variables of one lens's key, so that values fit on the stack.
const maxVariables = 16

// keys is how the names of a lens's kind map, both ways. A variable that both patterns
// have keeps its value; one that a single pattern has is a constant, or stands in a field
// of the other side's record. The mapping is one to one by construction: each name is
// the values of its variables, and each side's values follow from the other's.
type keys struct {
	from, to      *Pattern
	variables     []keyVariable
	fromAt        []int // variable of from -> index into variables
	toAt          []int
	byContent     bool // to's names do not follow from from's names alone
	byContentDown bool // the other way round
}

// keyVariable is a variable of either pattern.
type keyVariable struct {
	name      string
	constant  string // of a variable that one pattern has, unless field is set
	oneSided  bool
	field     path // of the side whose pattern lacks the variable
	keepField bool
}

// keyWay is keys in one direction.
type keyWay struct {
	*keys
	up bool
}

var _ keyMapping = keyWay{}

func (k keyWay) source() (*Pattern, []int) {
	if k.up {
		return k.from, k.fromAt
	}
	return k.to, k.toAt
}

func (k keyWay) target() (*Pattern, []int) { return keyWay{k.keys, !k.up}.source() }

// needsContent reports whether the target's names follow from more than the source's.
func (k keyWay) needsContent() bool {
	if k.up {
		return k.byContent
	}
	return k.byContentDown
}

// hasFields reports whether a part of a name is a field on the other side.
func (k *keys) hasFields() bool {
	return slices.ContainsFunc(k.variables, func(v keyVariable) bool { return v.field != nil })
}

// read takes a name of the source apart into values, one for each of k.variables, and
// fills in the constants of the target. Those of fields stay as they are.
func (k keyWay) read(name string, values []string) error {
	p, at := k.source()
	var buf [maxVariables]string
	if err := p.match(name, buf[:len(at)]); err != nil {
		return err
	}
	for i := range k.variables {
		if v := &k.variables[i]; v.oneSided && v.field == nil {
			values[i] = v.constant
		}
	}
	for i, slot := range at {
		v := &k.variables[slot]
		if v.oneSided && v.field == nil && buf[i] != v.constant {
			return fmt.Errorf("%q has %s %q, and the other version has records of %s %q only", shortened(name), v.name, shortened(buf[i]), v.name, v.constant)
		}
		values[slot] = buf[i]
	}
	return nil
}

// appendTarget appends the target's name of these values.
func (k keyWay) appendTarget(dst []byte, values []string) []byte {
	p, at := k.target()
	var buf [maxVariables]string
	for i, slot := range at {
		buf[i] = values[slot]
	}
	return p.appendName(dst, buf[:len(at)], len(p.segments))
}

// name maps a name, for the engine. It must not be called where needsContent.
func (k keyWay) name(name string) (string, error) {
	var values [maxVariables]string
	if err := k.read(name, values[:]); err != nil {
		return "", err
	}
	return string(k.appendTarget(nil, values[:])), nil
}

// Name maps the name of a record.
func (k keyWay) Name(name string) (string, error) {
	for _, v := range k.variables {
		if k.ofContent(v) {
			return "", &transform.MappingError{Field: name, Reason: fmt.Sprintf("{%s} of the other version's name is the field %s of the record, not part of its name here", v.name, v.field)}
		}
	}
	out, err := k.name(name)
	if err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	return out, nil
}

// ofContent reports whether only the target's pattern has v, and a field of the source
// holds it.
func (k keyWay) ofContent(v keyVariable) bool {
	p, _ := k.target()
	return v.field != nil && slices.Contains(p.variables, v.name)
}

// keyMapping returns the mapping of names in one direction, nil where they do not change.
func (l *Lens) keyMapping(up bool) keyMapping {
	if l.keys == nil {
		return nil
	}
	return keyWay{l.keys, up}
}

// KeyPatterns returns the forms of names on the old and the new side, nil where the lens
// does not change them.
func (l *Lens) KeyPatterns() (from, to *Pattern) {
	if l.keys == nil {
		return nil, nil
	}
	return l.keys.from, l.keys.to
}

// KeepsNameOrder reports whether the names under a parent, given as the old version (up)
// or the new one has it, sort alike in both. Then a list can be read a page at a time in
// name order from either side.
func (l *Lens) KeepsNameOrder(parent string, up bool) bool {
	return l.keys == nil || keyWay{l.keys, up}.keepsOrder(parent)
}
