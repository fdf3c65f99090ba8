package edit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
)

// ErrMalformed means that the bytes are not a BSON document.
var ErrMalformed = errors.New("document is not well-formed BSON")

// Node is a document opened for editing. Its elements point into the bytes of the document, and
// their values are not decoded. Encode copies untouched parts as bytes. A Node is valid until the
// Release of its Editor.
type Node struct {
	src     []byte
	Elems   []Elem
	Changed bool // this level has changed; Dirty also covers the levels below
	// emptying means that a field moved away, so the object is removed with its last field.
	emptying bool
}

// Elem is one element of a node, and has one of three forms: unchanged bytes of the document, a new
// Name and Val, or a sub-document opened for editing (Sub).
type Elem struct {
	Type     bson.Type
	Name     []byte // without the NUL; points into the lens or the record
	Val      []byte // the value; outdated once Sub changes, see Value
	off, end int    // in the node's src; end is 0 for a new element
	Sub      *Node
	Floating bool // an operation appended it; its final place is open
}

// Editor owns the memory of one run's nodes. New takes it from a pool, and Release returns it
// there.
type Editor struct {
	nodes   []*Node
	used    int
	Scratch []byte   // values that operations made
	vars    []string // values of the variables of the key
	Group   *Group   // the other records of the group; nil if there are none
	Have    bson.Raw // the target's version of the record; nil if it has none
	// Answers and Asked serve a data update that follows references. Answers holds the known keys
	// of the other version. While Asked is not nil, operations add their lookups to it instead of
	// using Answers.
	Answers transform.Answers
	Asked   *[]transform.Question
}

var editors = sync.Pool{New: func() any { return &Editor{} }}

// New returns an editor from the pool. The caller must call Release.
func New() *Editor { return editors.Get().(*Editor) }

// keptNodes limits the memory that an editor keeps between records. Only records with long lists
// need more.
const keptNodes = 64

// Release drops all references to the record's bytes and returns the editor to the pool. The nodes
// and scratch values of the editor are invalid afterwards.
func (e *Editor) Release() {
	if len(e.nodes) > keptNodes {
		clear(e.nodes[keptNodes:])
		e.nodes, e.used = e.nodes[:keptNodes], min(e.used, keptNodes)
	}
	for _, n := range e.nodes[:e.used] {
		// Otherwise the pool would keep the records' bytes alive.
		clear(n.Elems)
		*n = Node{Elems: n.Elems[:0]}
	}
	e.used = 0
	clear(e.vars)
	e.Group, e.Have, e.Answers, e.Asked = nil, nil, nil, nil
	// Nothing outside refers to Scratch, because Encode copied it.
	e.Scratch = e.Scratch[:0]
	editors.Put(e)
}

// Node returns an empty node, which belongs to the editor.
func (e *Editor) Node() *Node { return e.node(usualElems) }

// usualElems is the number of elements for which a new node has room.
const usualElems = 8

// node returns an empty node with room for a number of elements, if it is a new one.
func (e *Editor) node(room int) *Node {
	if e.used == len(e.nodes) {
		// The first node is the record itself, which has more fields than its objects.
		if e.used == 0 {
			room = 4 * usualElems
		}
		e.nodes = append(e.nodes, &Node{Elems: make([]Elem, 0, room)})
	}
	n := e.nodes[e.used]
	e.used++
	return n
}

// Slots returns a slice of at least n texts for the values of a key's variables. All calls within a
// run return the same texts, so Rekey and KeyField share them.
func (e *Editor) Slots(n int) []string {
	for len(e.vars) < n {
		e.vars = append(e.vars, "")
	}
	return e.vars
}

// Open reads the elements of a document, one level deep. It returns ErrMalformed if that level is
// not well formed. It checks deeper levels only when an operation opens them.
func (e *Editor) Open(doc []byte) (*Node, error) {
	if len(doc) < 5 || int64(binary.LittleEndian.Uint32(doc)) != int64(len(doc)) || doc[len(doc)-1] != 0 {
		return nil, ErrMalformed
	}
	// A record has room for a million empty objects, each of which becomes a node. An element has three
	// bytes at least.
	n := e.node(min(usualElems, (len(doc)-5)/3))
	n.src = doc
	end := len(doc) - 1
	// Nested documents are checked when an operation opens them.
	for at := 4; at < end; {
		off := at
		typ := bson.Type(doc[at])
		at++
		nameAt := at
		for at < end && doc[at] != 0 {
			at++
		}
		if at >= end {
			return nil, ErrMalformed
		}
		// The third index keeps an append from overwriting the record.
		name := doc[nameAt:at:at]
		at++
		size, ok := valueSize(typ, doc[at:end])
		if !ok {
			return nil, ErrMalformed
		}
		n.Elems = append(n.Elems, Elem{Type: typ, Name: name, Val: doc[at : at+size : at+size], off: off, end: at + size})
		at += size
	}
	return n, nil
}

// valueSize returns the number of bytes of the value at the start of b.
func valueSize(t bson.Type, b []byte) (int, bool) {
	size := 0
	switch t {
	case bson.TypeNull, bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
	case bson.TypeBoolean:
		size = 1
	case bson.TypeInt32:
		size = 4
	case bson.TypeDouble, bson.TypeInt64, bson.TypeDateTime, bson.TypeTimestamp:
		size = 8
	case bson.TypeObjectID:
		size = 12
	case bson.TypeDecimal128:
		size = 16
	case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol, bson.TypeDBPointer, bson.TypeBinary:
		n, ok := int32At(b)
		if !ok {
			return 0, false
		}
		size = 4 + n
		switch t {
		case bson.TypeDBPointer:
			size += 12
		case bson.TypeBinary:
			size++
		}
		// A string has a length, and its last byte is zero. scalar.StringOf relies on this check.
		if t != bson.TypeBinary && (n < 1 || 4+n > len(b) || b[3+n] != 0) {
			return 0, false
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray, bson.TypeCodeWithScope:
		n, ok := int32At(b)
		if !ok || n < 5 {
			return 0, false
		}
		size = n
	// Two zero-terminated strings: the pattern and its options.
	case bson.TypeRegex:
		for range 2 {
			for size < len(b) && b[size] != 0 {
				size++
			}
			size++
		}
	default:
		return 0, false
	}
	return size, size <= len(b)
}

// int32At reads a length. ok is false if it is negative.
func int32At(b []byte) (int, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := int32(binary.LittleEndian.Uint32(b))
	return int(n), n >= 0
}

// Find returns the index of a field, or -1 if it is absent. A duplicate name is a Refusal, because
// the reverse could not distinguish the two fields.
func (n *Node) Find(name []byte) (int, error) {
	at := -1
	for i := range n.Elems {
		if string(n.Elems[i].Name) == string(name) {
			if at >= 0 {
				return 0, Refuse(Path{name}, "is there twice")
			}
			at = i
		}
	}
	return at, nil
}

// fewElems is the number of elements up to which a search costs less than a map of their names.
const fewElems = 32

// finder returns a function that finds fields by name, for searches of many of them: a list has as
// many items as fit into a record. The function returns -1 for a field that is absent or there twice.
func (n *Node) finder() func(name []byte) int {
	if len(n.Elems) <= fewElems {
		return func(name []byte) int {
			at, err := n.Find(name)
			if err != nil {
				return -1
			}
			return at
		}
	}
	var places map[string]int // made for the first search
	return func(name []byte) int {
		if places == nil {
			places = make(map[string]int, len(n.Elems))
			for i := range n.Elems {
				if _, twice := places[string(n.Elems[i].Name)]; twice {
					places[string(n.Elems[i].Name)] = -1
					continue
				}
				places[string(n.Elems[i].Name)] = i
			}
		}
		if at, there := places[string(name)]; there {
			return at
		}
		return -1
	}
}

// sub opens the sub-document at i. It returns nil for a value without fields. An array is an error,
// because a path of a lens names one value.
func (e *Editor) sub(n *Node, i int) (*Node, error) {
	el := &n.Elems[i]
	switch {
	case el.Type == bson.TypeArray:
		return nil, Refuse(Path{el.Name}, "is an array, which a path cannot lead through")
	case el.Sub != nil:
		return el.Sub, nil
	case el.Type != bson.TypeEmbeddedDocument:
		return nil, nil
	}
	return e.OpenAt(el)
}

// OpenAt opens the document or array in el.Val for editing and stores the node in el.Sub. If el.Sub
// is set, it returns that node.
func (e *Editor) OpenAt(el *Elem) (*Node, error) {
	if el.Sub != nil {
		return el.Sub, nil
	}
	s, err := e.Open(el.Val)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", el.Name, err)
	}
	el.Sub = s
	return s, nil
}

// Append adds a new field at the end. RestoreOrder may move it later.
func (n *Node) Append(el Elem) {
	el.off, el.end = 0, 0
	el.Floating = true
	n.Elems = append(n.Elems, el)
	n.Changed = true
}

// Rename gives the field at i another name.
func (n *Node) Rename(i int, name []byte) {
	// end 0 marks the element as new. Otherwise Encode would copy the old name.
	n.Elems[i].Name, n.Elems[i].end = name, 0
	n.Changed = true
}

// Remove deletes the field at i.
func (n *Node) Remove(i int) {
	n.Elems = append(n.Elems[:i], n.Elems[i+1:]...)
	n.Changed = true
}

// Set replaces the value at i.
func (n *Node) Set(i int, typ bson.Type, val []byte) {
	el := &n.Elems[i]
	// end 0 marks the element as new, so that Encode writes Val.
	el.Type, el.Val, el.Sub, el.end = typ, val, nil, 0
	n.Changed = true
}

// Dirty reports whether the document or one within it has changed.
func (n *Node) Dirty() bool {
	if n.Changed {
		return true
	}
	for i := range n.Elems {
		if s := n.Elems[i].Sub; s != nil && s.Dirty() {
			return true
		}
	}
	return false
}

// Encode appends the document to dst and returns the extended slice. It copies neighbouring
// untouched elements in one piece.
func (n *Node) Encode(dst []byte) []byte {
	if !n.Dirty() {
		return append(dst, n.src...)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	runOff, runEnd := 0, 0
	for i := range n.Elems {
		el := &n.Elems[i]
		// Extend the current run of untouched elements, or start another one after a gap.
		if el.end > 0 && (el.Sub == nil || !el.Sub.Dirty()) {
			if el.off != runEnd || runEnd == 0 {
				dst = append(dst, n.src[runOff:runEnd]...)
				runOff = el.off
			}
			runEnd = el.end
			continue
		}
		dst = append(dst, n.src[runOff:runEnd]...)
		runOff, runEnd = 0, 0
		dst = append(dst, byte(el.Type))
		dst = append(dst, el.Name...)
		dst = append(dst, 0)
		if el.Sub != nil {
			dst = el.Sub.Encode(dst)
		} else {
			dst = append(dst, el.Val...)
		}
	}
	dst = append(dst, n.src[runOff:runEnd]...)
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// Value returns the present bytes of the element's value. It encodes a changed sub-document.
func (el *Elem) Value() []byte {
	if el.Sub != nil && el.Sub.Dirty() {
		return el.Sub.Encode(nil)
	}
	return el.Val
}
