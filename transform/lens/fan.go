package lens

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// fan ties a field of one side's record to records of another kind, the children, that
// the other side has in its place. fanOut has its children on the new side, gather on
// the old one.
//
// Every child can be checked against its parent: its key follows from the parent's name
// and from what it holds. A child that holds something else is an error.
type fan struct {
	gather bool
	field  path
	as     fanShape
	kind   string
	key    *idForm
	parts  []keyPart // where the variables of key come from
	id     path      // of a list: the field of an item that tells it from the others
	// Fields of the child; nil where it has none. entry is the name of a map's entry.
	parent, order, entry, value []byte
	// unnamed: an object without an _id, and no other, is the child that has its parent's.
	unnamed unnamedRule
	// present: a list or map without entries and none at all mean the same. Each record keeps
	// the one that it has, and a new one gets the empty list or map.
	present bool

	parentForm       *idForm  // of the parent's _ids on the children's side; nil: any
	parentType       idType   // of {_key}
	constants        []string // of the variables of parentForm; empty for those that vary
	at               position // of the operations
	scatter, collect program  // from an item to its child, and back
	// prefix counts the segments of key that follow from the parent alone, and the parent
	// from them; whole: all of key does, so that a parent has one child at most.
	prefix int
	whole  bool
}

type fanShape string

const (
	asList   fanShape = "list"
	asMap    fanShape = "map"
	asObject fanShape = "object"
)

// keyPart is what a variable of a child's key stands for.
type keyPart struct {
	source partSource
	index  int  // of the variable in the parent's form
	item   path // field of the item
}

type partSource int

const (
	partKey      partSource = iota // the parent's name
	partVariable                   // a variable of the parent's name
	partIndex                      // the place in the list
	partEntry                      // the name of the map's entry
	partItem                       // a field of the item
)

// itemPrefix begins variables that are fields of the item.
const itemPrefix = "item."

// simpleVariable reports whether a variable may stand in the pattern of a kind's own key.
func simpleVariable(name string) bool { return !strings.Contains(name, ".") }

func (f *fan) verb() string {
	if f.gather {
		return "gather"
	}
	return "fanOut"
}

// group is what operations on several kinds work on: the records around the one that
// the program runs on. It belongs to one run.
type group struct {
	ids      [2]mainID       // of the record on the old and on the new side
	children []record.Record // of the source's group
	have     []record.Record // of the target's group, without the record itself
	main     bson.Raw        // what the target has of the record itself; nil for nothing
	out      []record.Record // children made
}

// mainID is the _id of the record that has the children, on one side.
type mainID struct {
	value bson.RawValue
	key   record.Key
}

// side is the index into group.ids of the side that has the children.
func (f *fan) side() int {
	if f.gather {
		return 0
	}
	return 1
}

// of returns the records of one kind, which stand together.
func of(rs []record.Record, kind string) []record.Record {
	from := slices.IndexFunc(rs, func(r record.Record) bool { return r.Kind == kind })
	if from < 0 {
		return nil
	}
	to := from
	for to < len(rs) && rs[to].Kind == kind {
		to++
	}
	return rs[from:to:to]
}

// withKey finds a record among those of one kind, sorted by key as those of a group are.
func withKey(rs []record.Record, key record.Key) (record.Record, bool) {
	i, ok := slices.BinarySearchFunc(rs, key, func(r record.Record, k record.Key) int { return strings.Compare(string(r.Key), string(k)) })
	if !ok {
		return record.Record{}, false
	}
	return rs[i], true
}

// errNoGroup: Up and Down take one document.
var errNoGroup = errors.New("the lens works on groups of several records, which only the transformer of Spec has")

// child is one entry of the field, between its two forms.
type child struct {
	index int           // place in the list
	entry []byte        // name in the map
	place int64         // what orders the list, by its index or by the field for it
	id    bson.RawValue // of an item of a list; it orders one that has no place
	item  *node         // nil for an entry that is no object
	typ   bson.Type
	val   []byte
	own   bson.RawValue // its _id
	key   record.Key
}

// fanRun is a fan at work on one group.
type fanRun struct {
	*fan
	e      *editor
	g      *group
	have   []record.Record      // what the target has of the children
	values [maxVariables]string // of the parent's part of the key
}

// begin takes the parent's name apart. Where it cannot be part of a key, no child can be.
func (f *fan) begin(e *editor) (*fanRun, error) {
	g := e.group
	r := &fanRun{fan: f, e: e, g: g, have: of(g.have, f.kind)}
	if !f.namesParent() {
		return r, nil
	}
	if err := f.parentValues(g.ids[f.side()].value, readStored, r.values[:]); err != nil {
		return nil, fmt.Errorf("the _id of the record cannot be part of a key of %s: %w", f.kind, err)
	}
	return r, nil
}

// namesParent reports whether any part of a child's key is of its parent's name.
func (f *fan) namesParent() bool {
	return slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partKey || p.source == partVariable })
}

// parentValues fills in what a parent's _id determines of its children's keys.
func (f *fan) parentValues(id bson.RawValue, as reading, values []string) error {
	var own [maxVariables]string
	if f.parentForm != nil {
		if err := f.parentForm.read(id, as, own[:len(f.parentForm.variables)]); err != nil {
			return err
		}
	}
	for i, part := range f.parts {
		switch part.source {
		case partKey:
			text, err := f.parentType.read(id, as)
			if err != nil {
				return fmt.Errorf("it %w: declare the type that it has in the key, as %s:objectId does", err, WholeKey)
			}
			values[i] = text
		case partVariable:
			if err := f.key.types[i].check(own[part.index]); err != nil {
				return fmt.Errorf("{%s} %w", f.key.variables[i], err)
			}
			values[i] = own[part.index]
		}
	}
	return nil
}

// identify computes the _id of a child, and its key.
func (r *fanRun) identify(c *child) error {
	for i, part := range r.parts {
		var v string
		var err error
		switch part.source {
		case partIndex:
			v = strconv.Itoa(c.index)
		case partEntry:
			v = string(c.entry)
		case partItem:
			v, err = r.text(c, part.item, r.key.types[i])
		default:
			continue
		}
		if err == nil {
			err = checkPart(r.key.variables[i], r.key.types[i], v)
		}
		if err != nil {
			return fmt.Errorf("key of a record of %s: %w", r.kind, err)
		}
		r.values[i] = v
	}
	typ, val := r.e.id(func(dst []byte) (bson.Type, []byte) { return r.key.append(dst, r.values[:len(r.parts)]) })
	c.own = bson.RawValue{Type: typ, Value: val}
	if typ == bson.TypeString {
		c.key = record.Key(string(byte(typ)) + string(val))
		return nil
	}
	var err error
	c.key, err = record.KeyOf(c.own)
	return err
}

// checkPart refuses what would be read differently out of a key.
func checkPart(variable string, t idType, value string) error {
	if t == idAny {
		return nil
	}
	if err := checkValue(variable, value); err != nil {
		return err
	}
	if err := t.check(value); err != nil {
		return fmt.Errorf("{%s} %w", variable, err)
	}
	return nil
}

// text is a field of an item as part of a key. Where no type is declared, the item itself
// tells which one it has, when the key is made of it again.
func (r *fanRun) text(c *child, field path, t idType) (string, error) {
	typ, val, err := r.part(c, field)
	if err != nil {
		return "", err
	}
	if t != "" {
		text, err := t.read(bson.RawValue{Type: typ, Value: val}, readExact)
		if err != nil {
			return "", fmt.Errorf("%s %w", field, err)
		}
		return text, nil
	}
	switch typ {
	case bson.TypeString:
		return stringOf(val), nil
	case bson.TypeInt32:
		return strconv.FormatInt(int64(int32(binary.LittleEndian.Uint32(val))), 10), nil
	case bson.TypeInt64:
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(val)), 10), nil
	case bson.TypeObjectID:
		return bson.ObjectID(val).Hex(), nil
	}
	return "", fmt.Errorf("%s is %s (%s), which cannot be part of a key: want a string, int, long or objectId", field, show(typ, val), TypeName(typ))
}

// part reads a field of an item.
func (r *fanRun) part(c *child, field path) (bson.Type, []byte, error) {
	if c.item == nil {
		return 0, nil, fmt.Errorf("an entry of %s is of type %s, not an object with %s", r.field, TypeName(c.typ), field)
	}
	n, i, err := r.e.lookup(c.item, field)
	if err != nil {
		return 0, nil, err
	}
	if i < 0 {
		return 0, nil, fmt.Errorf("an entry of %s has no %s", r.field, field)
	}
	return n.elems[i].typ, n.elems[i].value(), nil
}

// compareIDs orders ids of one type.
func compareIDs(a, b bson.RawValue) (int, error) {
	whole := func(t bson.Type) bool { return t == bson.TypeInt32 || t == bson.TypeInt64 }
	switch {
	case whole(a.Type) && whole(b.Type):
		return cmp.Compare(a.AsInt64(), b.AsInt64()), nil
	case a.Type == bson.TypeString && b.Type == bson.TypeString:
		return strings.Compare(stringOf(a.Value), stringOf(b.Value)), nil
	case a.Type == bson.TypeObjectID && b.Type == bson.TypeObjectID:
		return bytes.Compare(a.Value, b.Value), nil
	}
	return 0, fmt.Errorf("ids of type %s and %s have no order: want strings, integers or objectIds, all alike", TypeName(a.Type), TypeName(b.Type))
}
