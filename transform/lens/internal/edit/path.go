package edit

import (
	"fmt"
	"strings"
)

// MaxDepth is the maximum number of parts of a path. The database allows 100 nested levels.
const MaxDepth = 32

// Path is a dotted path, split into its parts. Each part is a field name in bytes, as in BSON.
//
// The part ItemPart stands for any item of a list or entry of a map. An operation within an each
// gets one item as a record whose only field is named ItemPart. So its paths begin with ItemPart,
// and the path of the item itself has no other part.
type Path [][]byte

// ItemPart is the part of a Path that stands for an item. It is a dot, because no other part of a
// path in a lens can contain one.
const ItemPart = "."

// ParsePath checks and splits a path of a lens. It refuses a path that begins with _id, empty
// parts, "*", parts that begin with $, NUL bytes, and more than MaxDepth parts.
func ParsePath(s string) (Path, error) {
	p, err := splitPath(s)
	// key changes the _id. Two mechanisms would conflict.
	if err == nil && string(p[0]) == "_id" {
		return nil, fmt.Errorf("path %q: a lens cannot change the _id, which names the record", s)
	}
	return p, err
}

// ParseItemPath is ParsePath for operations within an each. The result begins with ItemPart. The
// text "." is the item itself, and _id is allowed.
func ParseItemPath(s string) (Path, error) {
	if s == ItemPart {
		return Path{[]byte(ItemPart)}, nil
	}
	p, err := splitPath(s)
	if err != nil {
		return nil, err
	}
	return append(Path{[]byte(ItemPart)}, p...), nil
}

func splitPath(s string) (Path, error) {
	var p Path
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
	if len(p) > MaxDepth {
		return nil, fmt.Errorf("path %q has more than %d parts", s, MaxDepth)
	}
	return p, nil
}

// String returns the path as the lens writes it. An item is "*" if another part comes before it.
func (p Path) String() string {
	parts := make([]string, 0, len(p))
	for i := range p {
		switch {
		case string(p[i]) != ItemPart:
			parts = append(parts, string(p[i]))
		case i > 0:
			parts = append(parts, "*")
		case len(p) == 1:
			return ItemPart
		}
	}
	return strings.Join(parts, ".")
}

// IsItem reports whether p is the item itself.
func (p Path) IsItem() bool { return len(p) == 1 && string(p[0]) == ItemPart }

// Nested reports whether p is within an object of the record or item. That object may be absent.
func (p Path) Nested() bool { return len(p) > 1 && !p.Parent().IsItem() }

// ItemAt returns the index of the first ItemPart after the first part, or -1.
func (p Path) ItemAt() int {
	for i := 1; i < len(p); i++ {
		if string(p[i]) == ItemPart {
			return i
		}
	}
	return -1
}

// Items returns the number of lists and maps that p leads through: the number of ItemParts after
// the first part.
func (p Path) Items() int {
	n := 0
	for i := 1; i < len(p); i++ {
		if string(p[i]) == ItemPart {
			n++
		}
	}
	return n
}

// Join returns p followed by q, in new memory.
func (p Path) Join(q Path) Path { return append(append(make(Path, 0, len(p)+len(q)), p...), q...) }

// Last returns the last part. p must not be empty.
func (p Path) Last() []byte { return p[len(p)-1] }

// Parent returns p without its last part, in the same memory. p must not be empty.
func (p Path) Parent() Path { return p[:len(p)-1] }

// Equal reports whether two paths have the same parts.
func (p Path) Equal(q Path) bool { return len(p) == len(q) && p.Under(q) }

// Under reports whether p is q or within it.
func (p Path) Under(q Path) bool {
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

// Overlaps reports whether one path is the other or within it.
func (p Path) Overlaps(q Path) bool { return p.Under(q) || q.Under(p) }

// Rebase returns p with its prefix from replaced by to. p must begin with from.
func (p Path) Rebase(from, to Path) Path {
	return to.Join(p[len(from):])
}

// Parent returns the document that holds the last part of p. It returns nil if that document is
// absent or is a value without fields. An array on the way is a Refusal.
func (e *Editor) Parent(root *Node, p Path) (*Node, error) {
	n := root
	for _, part := range p.Parent() {
		i, err := n.Find(part)
		if err != nil || i < 0 {
			return nil, err
		}
		if n, err = e.sub(n, i); err != nil || n == nil {
			return nil, err
		}
	}
	return n, nil
}

// Lookup returns the document that holds p, and the field's index in it. The index is -1 if the
// field is absent. The node is nil if the document is absent too.
func (e *Editor) Lookup(root *Node, p Path) (*Node, int, error) {
	n, err := e.Parent(root, p)
	if err != nil || n == nil {
		return nil, -1, err
	}
	i, err := n.Find(p.Last())
	return n, i, err
}
