package lens

import (
	"fmt"
	"strings"
)

// maxDepth limits paths. The database limits nesting to 100.
const maxDepth = 32

// path is a split dotted path. Its parts are bytes, as names of fields are in BSON.
//
// The part itemPart stands for any item of a list or entry of a map. Operations within an each see
// an item as the only field, named itemPart, of a record of its own. So their paths begin with
// itemPart, and the path of the item itself has no other part.
type path [][]byte

// itemPart is a dot, because no part of a path in a lens can contain one.
const itemPart = "."

// parsePath checks and splits a path of a lens.
func parsePath(s string) (path, error) {
	p, err := splitPath(s)
	// key changes the _id. Two mechanisms would conflict.
	if err == nil && string(p[0]) == "_id" {
		return nil, fmt.Errorf("path %q: a lens cannot change the _id, which names the record", s)
	}
	return p, err
}

// parseItemPath is parsePath for operations within an each.
func parseItemPath(s string) (path, error) {
	if s == itemPart {
		return path{[]byte(itemPart)}, nil
	}
	p, err := splitPath(s)
	if err != nil {
		return nil, err
	}
	return append(path{[]byte(itemPart)}, p...), nil
}

func splitPath(s string) (path, error) {
	var p path
	for part := range strings.SplitSeq(s, ".") {
		switch {
		case part == "":
			return nil, fmt.Errorf("path %q has an empty part", s)
		case part == "*":
			return nil, fmt.Errorf("path %q: a path names one value; use each to work on all items of a list or map", s)
		// The database reads such names as operators.
		case strings.HasPrefix(part, "$"):
			return nil, fmt.Errorf("path %q: a part must not begin with $", s)
		case strings.ContainsRune(part, 0):
			return nil, fmt.Errorf("path %q holds a NUL byte", s)
		}
		p = append(p, []byte(part))
	}
	if len(p) > maxDepth {
		return nil, fmt.Errorf("path %q has more than %d parts", s, maxDepth)
	}
	return p, nil
}

// String returns the path as the lens writes it. An item is "*" if another part comes before it.
func (p path) String() string {
	parts := make([]string, 0, len(p))
	for i := range p {
		switch {
		case string(p[i]) != itemPart:
			parts = append(parts, string(p[i]))
		case i > 0:
			parts = append(parts, "*")
		case len(p) == 1:
			return itemPart
		}
	}
	return strings.Join(parts, ".")
}

// isItem reports whether p is the item itself.
func (p path) isItem() bool { return len(p) == 1 && string(p[0]) == itemPart }

// nested reports whether p is in an object that may be absent.
func (p path) nested() bool { return len(p) > 1 && !p.parent().isItem() }

// itemAt returns the index of the first itemPart after the first part, or -1.
func (p path) itemAt() int {
	for i := 1; i < len(p); i++ {
		if string(p[i]) == itemPart {
			return i
		}
	}
	return -1
}

// items returns the number of lists and maps that p leads through.
func (p path) items() int {
	n := 0
	for i := 1; i < len(p); i++ {
		if string(p[i]) == itemPart {
			n++
		}
	}
	return n
}

// join appends q to p.
func (p path) join(q path) path { return append(append(make(path, 0, len(p)+len(q)), p...), q...) }

func (p path) last() []byte { return p[len(p)-1] }
func (p path) parent() path { return p[:len(p)-1] }

func (p path) equal(q path) bool { return len(p) == len(q) && p.under(q) }

// under reports whether p is q or within it.
func (p path) under(q path) bool {
	if len(p) < len(q) {
		return false
	}
	for i := range q {
		if string(p[i]) != string(q[i]) {
			return false
		}
	}
	return true
}

// overlaps reports whether one path is the other or within it.
func (p path) overlaps(q path) bool { return p.under(q) || q.under(p) }

// rebase replaces the prefix from, which p must have, by to.
func (p path) rebase(from, to path) path {
	return to.join(p[len(from):])
}

// parent returns the document that holds the last part of p, or nil if it is absent.
func (e *editor) parent(root *node, p path) (*node, error) {
	n := root
	for _, part := range p.parent() {
		i, err := n.find(part)
		if err != nil || i < 0 {
			return nil, err
		}
		if n, err = e.sub(n, i); err != nil || n == nil {
			return nil, err
		}
	}
	return n, nil
}

// lookup returns the document that holds p and the field's index in it, or -1.
func (e *editor) lookup(root *node, p path) (*node, int, error) {
	n, err := e.parent(root, p)
	if err != nil || n == nil {
		return nil, -1, err
	}
	i, err := n.find(p.last())
	return n, i, err
}
