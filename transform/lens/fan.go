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
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// fan ties a field of one side's record to records of another kind on the other side: the children.
// fanOut has its children on the new side, gather on the old side.
//
// Every child can be checked against its parent, because its key follows from the parent's name and
// from its own content. A child that contradicts its key is an error.
type fan struct {
	gather bool
	field  edit.Path
	as     fanShape
	kind   string
	key    *keymap.Form
	parts  []keyPart // the sources of key's variables
	id     edit.Path // of a list: the field that distinguishes the items
	// Fields of the child, or nil. entry is the field with the name of a map's entry.
	parent, order, entry, value []byte
	// unnamed gives an object without an _id, and only such an object, the _id of its parent.
	unnamed unnamedRule
	// present makes an empty list or map equal to an absent one. Each record keeps its state, and a
	// new record gets the empty list or map.
	present bool

	parentForm       *keymap.Form      // form of the parent's _ids on the children's side; nil: any
	parentType       scalar.IDType     // of {_key}
	constants        []string          // of the variables of parentForm; empty for variables without one
	scatter, collect operation.Program // from an item to its child, and the reverse
	// prefix counts the leading segments of key that follow from the parent and determine it. whole
	// means that all of key follows from the parent, so a parent has at most one child.
	prefix int
	whole  bool
}

type fanShape string

const (
	asList   fanShape = "list"
	asMap    fanShape = "map"
	asObject fanShape = "object"
)

// keyPart is the source of a variable of a child's key.
type keyPart struct {
	source partSource
	index  int       // of the variable in the parent's form
	item   edit.Path // the field of the item
}

type partSource int

const (
	partKey      partSource = iota // the parent's name
	partVariable                   // a variable of the parent's name
	partIndex                      // the place in the list
	partEntry                      // the name of the map's entry
	partItem                       // a field of the item
)

func (f *fan) verb() string {
	if f.gather {
		return "gather"
	}
	return "fanOut"
}

// side returns the index in group.ids of the side with the children.
func (f *fan) side() int {
	if f.gather {
		return 0
	}
	return 1
}

// of returns the records of one kind. They must be consecutive.
func of(rs []record.Record, kind string) []record.Record {
	// A group is sorted by kind, so the records of one kind are together.
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

// withKey finds a record by key among the records of one kind, which are sorted by key.
func withKey(rs []record.Record, key record.Key) (record.Record, bool) {
	i, ok := slices.BinarySearchFunc(rs, key, func(r record.Record, k record.Key) int { return strings.Compare(string(r.Key), string(k)) })
	if !ok {
		return record.Record{}, false
	}
	return rs[i], true
}

// errNoGroup is returned by Up and Down, which transform a single document.
var errNoGroup = errors.New("the lens works on groups of several records, which only the transformer of Spec has")

// child is one entry of the field, or the record that it corresponds to.
type child struct {
	index int           // place in the list
	entry []byte        // name in the map
	place int64         // sort value in the list: the index or the order field
	id    bson.RawValue // of a list item; the sort value if there is no place
	item  *edit.Node    // nil for an entry that is not an object
	typ   bson.Type
	val   []byte
	own   bson.RawValue // the child's _id
	key   record.Key
}

// fanRun is the state of a fan that works on one group.
type fanRun struct {
	*fan
	e      *edit.Editor
	g      *edit.Group
	have   []record.Record             // the target's children
	values [keymap.MaxVariables]string // parts of the key that follow from the parent
}

// begin reads the parent's name. If the name cannot be part of a key, the record can have no child.
func (f *fan) begin(e *edit.Editor) (*fanRun, error) {
	g := e.Group
	r := &fanRun{fan: f, e: e, g: g, have: of(g.Have, f.kind)}
	// The key does not contain the parent's name, so there is nothing to read from it.
	if !f.namesParent() {
		return r, nil
	}
	if err := f.parentValues(g.IDs[f.side()].Value, scalar.ReadStored, r.values[:]); err != nil {
		return nil, fmt.Errorf("the _id of the record cannot be part of a key of %s: %w", f.kind, err)
	}
	return r, nil
}

// identify computes a child's _id and key.
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
			v, err = r.text(c, part.item, r.key.Types[i])
		default:
			continue
		}
		if err == nil {
			err = checkPart(r.key.Variables[i], r.key.Types[i], v)
		}
		if err != nil {
			return fmt.Errorf("key of a record of %s: %w", r.kind, err)
		}
		r.values[i] = v
	}
	typ, val := r.e.Id(func(dst []byte) (bson.Type, []byte) { return r.key.AppendTo(dst, r.values[:len(r.parts)]) })
	c.own = bson.RawValue{Type: typ, Value: val}
	// Build the key directly: it is the frequent case, and KeyOf would validate the value again.
	if typ == bson.TypeString {
		c.key = record.Key(string(byte(typ)) + string(val))
		return nil
	}
	var err error
	c.key, err = record.KeyOf(c.own)
	return err
}

// checkPart refuses a value that would be read differently from a key.
func checkPart(variable string, t scalar.IDType, value string) error {
	if t == scalar.IDAny {
		return nil
	}
	if err := keymap.CheckValue(variable, value); err != nil {
		return err
	}
	if err := t.Check(value); err != nil {
		return fmt.Errorf("{%s} %w", variable, err)
	}
	return nil
}

// text returns a field of an item as text for a key. Without a declared type any suitable type is
// accepted, because the item itself keeps the type.
func (r *fanRun) text(c *child, field edit.Path, t scalar.IDType) (string, error) {
	typ, val, err := r.part(c, field)
	if err != nil {
		return "", err
	}
	if t != "" {
		text, err := t.Read(bson.RawValue{Type: typ, Value: val}, scalar.ReadExact)
		if err != nil {
			return "", fmt.Errorf("%s %w", field, err)
		}
		return text, nil
	}
	// Values of two types may share a text, such as 5 and "5". repeated then refuses the record.
	switch typ {
	case bson.TypeString:
		return scalar.StringOf(val), nil
	case bson.TypeInt32:
		return strconv.FormatInt(int64(int32(binary.LittleEndian.Uint32(val))), 10), nil
	case bson.TypeInt64:
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(val)), 10), nil
	case bson.TypeObjectID:
		return bson.ObjectID(val).Hex(), nil
	}
	return "", fmt.Errorf("%s is %s (%s), which cannot be part of a key: want a string, int, long or objectId", field, edit.Show(typ, val), edit.TypeName(typ))
}

// part reads a field of an item.
func (r *fanRun) part(c *child, field edit.Path) (bson.Type, []byte, error) {
	if c.item == nil {
		return 0, nil, fmt.Errorf("an entry of %s is of type %s, not an object with %s", r.field, edit.TypeName(c.typ), field)
	}
	n, i, err := r.e.Lookup(c.item, field)
	if err != nil {
		return 0, nil, err
	}
	if i < 0 {
		return 0, nil, fmt.Errorf("an entry of %s has no %s", r.field, field)
	}
	return n.Elems[i].Type, n.Elems[i].Value(), nil
}

// compareIDs orders two ids of the same type.
func compareIDs(a, b bson.RawValue) (int, error) {
	// Only types with an obvious order. Mixed ids have none that an application would expect.
	whole := func(t bson.Type) bool { return t == bson.TypeInt32 || t == bson.TypeInt64 }
	switch {
	case whole(a.Type) && whole(b.Type):
		return cmp.Compare(a.AsInt64(), b.AsInt64()), nil
	case a.Type == bson.TypeString && b.Type == bson.TypeString:
		return strings.Compare(scalar.StringOf(a.Value), scalar.StringOf(b.Value)), nil
	case a.Type == bson.TypeObjectID && b.Type == bson.TypeObjectID:
		return bytes.Compare(a.Value, b.Value), nil
	}
	return 0, fmt.Errorf("ids of type %s and %s have no order: want strings, integers or objectIds, all alike", edit.TypeName(a.Type), edit.TypeName(b.Type))
}

// unnamedRule is the rule for the _id of an object without one.
type unnamedRule string

// unnamedParent gives the object its parent's _id.
const unnamedParent unnamedRule = "parent"
