package lens

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
)

// errMalformed means that the bytes are not a BSON document.
var errMalformed = errors.New("document is not well-formed BSON")

// node is a document opened for editing. Its elements point into src, and their values are not
// decoded. Untouched parts are copied as bytes.
type node struct {
	src     []byte
	elems   []elem
	changed bool // the node itself; changed sub-documents are found through their elems
	// emptying means that a field moved away, so the object is removed with its last field.
	emptying bool
}

// elem is one element of a node: unchanged bytes (src[off:end] of its node), a new name and val, or
// a sub-document opened for editing.
type elem struct {
	typ      bson.Type
	name     []byte // without the NUL; points into the lens or the record
	val      []byte // the value; out of date once sub changes
	off, end int    // in the node's src; end is 0 for a new element
	sub      *node
	floating bool // an operation appended it; its final place is open
}

// editor owns the memory of the nodes of one run, and is reused afterwards.
type editor struct {
	nodes   []*node
	used    int
	scratch []byte   // values that operations made
	vars    []string // values of the variables of the key
	group   *group   // the other records of the group; nil if there are none
	have    bson.Raw // the target's version of the record; nil if it has none
	// answers and asked belong to a data update that follows references: the known keys, and the
	// list of lookups to collect. asked is nil once the answers are known.
	answers transform.Answers
	asked   *[]transform.Question
}

var editors = sync.Pool{New: func() any { return &editor{} }}

// newEditor takes an editor from the pool. release puts it back.
func newEditor() *editor { return editors.Get().(*editor) }

// keptNodes limits the memory that an editor keeps between records. Only records with long lists
// need more.
const keptNodes = 64

// release drops all references to the record's bytes and returns the editor to the pool.
func (e *editor) release() {
	if len(e.nodes) > keptNodes {
		clear(e.nodes[keptNodes:])
		e.nodes, e.used = e.nodes[:keptNodes], min(e.used, keptNodes)
	}
	for _, n := range e.nodes[:e.used] {
		// Otherwise the pool would keep the records' bytes alive.
		clear(n.elems)
		*n = node{elems: n.elems[:0]}
	}
	e.used = 0
	clear(e.vars)
	e.group, e.have, e.answers, e.asked = nil, nil, nil, nil
	// Nothing outside refers to scratch, because encode copied it.
	e.scratch = e.scratch[:0]
	editors.Put(e)
}

func (e *editor) node() *node {
	if e.used == len(e.nodes) {
		// The first node is the record itself, which has more fields than its objects.
		size := 32
		if e.used > 0 {
			size = 8
		}
		e.nodes = append(e.nodes, &node{elems: make([]elem, 0, size)})
	}
	n := e.nodes[e.used]
	e.used++
	return n
}

// slots returns at least n places for the values of a key's variables.
func (e *editor) slots(n int) []string {
	for len(e.vars) < n {
		e.vars = append(e.vars, "")
	}
	return e.vars
}

// open reads the elements of a document, one level deep.
func (e *editor) open(doc []byte) (*node, error) {
	if len(doc) < 5 || int64(binary.LittleEndian.Uint32(doc)) != int64(len(doc)) || doc[len(doc)-1] != 0 {
		return nil, errMalformed
	}
	n := e.node()
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
			return nil, errMalformed
		}
		// The third index keeps an append from overwriting the record.
		name := doc[nameAt:at:at]
		at++
		size, ok := valueSize(typ, doc[at:end])
		if !ok {
			return nil, errMalformed
		}
		n.elems = append(n.elems, elem{typ: typ, name: name, val: doc[at : at+size : at+size], off: off, end: at + size})
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
		// A string has a length, and its last byte is zero. stringOf relies on this check.
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

// find returns the index of a field, or -1. A duplicate name is an error, because the reverse could
// not tell the two fields apart.
func (n *node) find(name []byte) (int, error) {
	at := -1
	for i := range n.elems {
		if string(n.elems[i].name) == string(name) {
			if at >= 0 {
				return 0, refuse(path{name}, "is there twice")
			}
			at = i
		}
	}
	return at, nil
}

// sub opens the sub-document at i. It returns nil for a value without fields. An array is an error,
// because a path of a lens names one value.
func (e *editor) sub(n *node, i int) (*node, error) {
	el := &n.elems[i]
	switch {
	case el.typ == bson.TypeArray:
		return nil, refuse(path{el.name}, "is an array, which a path cannot lead through")
	case el.sub != nil:
		return el.sub, nil
	case el.typ != bson.TypeEmbeddedDocument:
		return nil, nil
	}
	return e.openAt(el)
}

// openAt opens the document or array of an element.
func (e *editor) openAt(el *elem) (*node, error) {
	if el.sub != nil {
		return el.sub, nil
	}
	s, err := e.open(el.val)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", el.name, err)
	}
	el.sub = s
	return s, nil
}

// append adds a new field at the end.
func (n *node) append(el elem) {
	el.off, el.end = 0, 0
	el.floating = true
	n.elems = append(n.elems, el)
	n.changed = true
}

// remove deletes the field at i.
func (n *node) remove(i int) {
	n.elems = append(n.elems[:i], n.elems[i+1:]...)
	n.changed = true
}

// set replaces the value at i.
func (n *node) set(i int, typ bson.Type, val []byte) {
	el := &n.elems[i]
	// end 0 marks the element as new, so that encode writes val.
	el.typ, el.val, el.sub, el.end = typ, val, nil, 0
	n.changed = true
}

func (n *node) dirty() bool {
	if n.changed {
		return true
	}
	for i := range n.elems {
		if s := n.elems[i].sub; s != nil && s.dirty() {
			return true
		}
	}
	return false
}

// encode appends the document to dst. It copies each run of untouched neighbours at once.
func (n *node) encode(dst []byte) []byte {
	if !n.dirty() {
		return append(dst, n.src...)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	runOff, runEnd := 0, 0
	for i := range n.elems {
		el := &n.elems[i]
		// Extend the current run of untouched elements, or start another one after a gap.
		if el.end > 0 && (el.sub == nil || !el.sub.dirty()) {
			if el.off != runEnd || runEnd == 0 {
				dst = append(dst, n.src[runOff:runEnd]...)
				runOff = el.off
			}
			runEnd = el.end
			continue
		}
		dst = append(dst, n.src[runOff:runEnd]...)
		runOff, runEnd = 0, 0
		dst = append(dst, byte(el.typ))
		dst = append(dst, el.name...)
		dst = append(dst, 0)
		if el.sub != nil {
			dst = el.sub.encode(dst)
		} else {
			dst = append(dst, el.val...)
		}
	}
	dst = append(dst, n.src[runOff:runEnd]...)
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// value returns the present bytes of a field's value.
func (el *elem) value() []byte {
	if el.sub != nil && el.sub.dirty() {
		return el.sub.encode(nil)
	}
	return el.val
}
