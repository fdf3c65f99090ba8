package lens

import (
	"fmt"
	"strings"
)

// maxDepth bounds paths; the database's own bound on nesting is 100.
const maxDepth = 32

// path is a dotted path, split. Its parts are bytes because names of fields are.
type path [][]byte

// parsePath checks and splits a path as it stands in a lens.
func parsePath(s string) (path, error) {
	var p path
	for part := range strings.SplitSeq(s, ".") {
		switch {
		case part == "":
			return nil, fmt.Errorf("path %q has an empty part", s)
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
	if string(p[0]) == "_id" {
		return nil, fmt.Errorf("path %q: a lens cannot change the _id, which names the record", s)
	}
	return p, nil
}

func (p path) String() string {
	parts := make([]string, len(p))
	for i := range p {
		parts[i] = string(p[i])
	}
	return strings.Join(parts, ".")
}

func (p path) last() []byte { return p[len(p)-1] }
func (p path) parent() path { return p[:len(p)-1] }

func (p path) equal(q path) bool { return len(p) == len(q) && p.under(q) }

// under reports whether p is q or lies within it.
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

// overlaps reports whether one path lies within the other.
func (p path) overlaps(q path) bool { return p.under(q) || q.under(p) }

// rebase replaces the prefix from of p, which must be under it, by to.
func (p path) rebase(from, to path) path {
	return append(append(path{}, to...), p[len(from):]...)
}

// parent returns the document that holds the last part of p, nil if it is not there.
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

// lookup returns the document that holds p and its place in there, or -1.
func (e *editor) lookup(root *node, p path) (*node, int, error) {
	n, err := e.parent(root, p)
	if err != nil || n == nil {
		return nil, -1, err
	}
	i, err := n.find(p.last())
	return n, i, err
}
