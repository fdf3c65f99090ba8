package fanout

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

// Fan connects a field of one side's record with records of another kind on the other side, the
// children. A fanOut has its children on the new side, a gather on the old side.
//
// Every child can be checked against its parent, because its key follows from the parent's name and
// from its own content. A child that contradicts its key is an error.
type Fan struct {
	Gather bool
	Field  edit.Path
	As     Shape
	Kind   string
	Key    *keymap.Form
	Parts  []KeyPart // the source of each of Key's variables
	ID     edit.Path // of a list: the field that distinguishes the items; nil: there is none
	// Fields of the child; nil: there is none. Parent holds the parent's _id, Order the place in
	// the list, Entry the name of the map's entry, and Value an entry that is no object.
	Parent, Order, Entry, Value []byte
	// Unnamed is the rule for the _id of an object that has none. Empty: no rule.
	Unnamed unnamedRule
	// Present makes an empty list or map equal to an absent one. Each record keeps its present
	// state, and a new record gets the empty list or map.
	Present bool

	ParentForm       *keymap.Form      // form of the parent's _ids on the children's side; nil: any
	ParentType       scalar.IDType     // of {_key}
	Constants        []string          // of the variables of ParentForm; empty for variables without one
	Scatter, Collect operation.Program // from an entry to its child, and the reverse
	// Prefix is the number of leading segments of Key that follow from the parent and determine it.
	// Whole means that all of Key follows from the parent, so a parent has at most one child.
	Prefix int
	Whole  bool
}

// Shape is the type of the field: a list, a map or a single object.
type Shape string

const (
	AsList   Shape = "list"
	AsMap    Shape = "map"
	AsObject Shape = "object"
)

// KeyPart is the source of one variable of a child's key. Index is set for PartVariable, and Item
// for PartItem.
type KeyPart struct {
	Source partSource
	Index  int       // of the variable among those of ParentForm
	Item   edit.Path // a field of the item
}

type partSource int

const (
	PartKey      partSource = iota // the parent's name
	PartVariable                   // a variable of the parent's name
	PartIndex                      // the place in the list
	PartEntry                      // the name of the map's entry
	PartItem                       // a field of the item
)

// Verb returns the name of the operation in the lens: "fanOut" or "gather".
func (f *Fan) Verb() string {
	if f.Gather {
		return "gather"
	}
	return "fanOut"
}

// side returns the index in Group.IDs of the side with the children.
func (f *Fan) side() int {
	if f.Gather {
		return 0
	}
	return 1
}

// RecordsOf returns the records of one kind, in the memory of rs. They must be consecutive in rs.
func RecordsOf(rs []record.Record, kind string) []record.Record {
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
var errNoGroup = errors.New("the lens works on groups of several records: use the transformer of Spec")

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
	*Fan
	e      *edit.Editor
	g      *edit.Group
	have   []record.Record             // the target's children
	values [keymap.MaxVariables]string // parts of the key that follow from the parent
}

// begin reads the parent's name. If the name cannot be part of a key, the record can have no child.
func (f *Fan) begin(e *edit.Editor) (*fanRun, error) {
	g := e.Group
	r := &fanRun{Fan: f, e: e, g: g, have: RecordsOf(g.Have, f.Kind)}
	// The key does not contain the parent's name, so there is nothing to read from it.
	if !f.NamesParent() {
		return r, nil
	}
	if err := f.ParentValues(g.IDs[f.side()].Value, scalar.ReadStored, r.values[:]); err != nil {
		return nil, fmt.Errorf("the _id of the record cannot be part of a key of %s: %w", f.Kind, err)
	}
	return r, nil
}

// identify computes a child's _id and key.
func (r *fanRun) identify(c *child) error {
	for i, part := range r.Parts {
		var v string
		var err error
		switch part.Source {
		case PartIndex:
			v = strconv.Itoa(c.index)
		case PartEntry:
			v = string(c.entry)
		case PartItem:
			v, err = r.text(c, part.Item, r.Key.Types[i])
		default:
			continue
		}
		if err == nil {
			err = checkPart(r.Key.Variables[i], r.Key.Types[i], v)
		}
		if err != nil {
			return fmt.Errorf("key of a record of %s: %w", r.Kind, err)
		}
		r.values[i] = v
	}
	typ, val := r.e.Id(func(dst []byte) (bson.Type, []byte) { return r.Key.AppendTo(dst, r.values[:len(r.Parts)]) })
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
		return 0, nil, fmt.Errorf("an entry of %s is of type %s, not an object with %s", r.Field, edit.TypeName(c.typ), field)
	}
	n, i, err := r.e.Lookup(c.item, field)
	if err != nil {
		return 0, nil, err
	}
	if i < 0 {
		return 0, nil, fmt.Errorf("an entry of %s has no %s", r.Field, field)
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

// UnnamedParent gives an object without an _id the _id of its parent.
const UnnamedParent unnamedRule = "parent"
