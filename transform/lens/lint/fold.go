package lint

import (
	"cmp"
	"slices"
	"strings"
)

// manyKeys is the number of fields, equal except for their names, from which an object counts as a
// map.
const manyKeys = 20

// anyKey stands for the names of such fields.
const anyKey = "<key>"

// fold merges changes that differ only in the names of many fields of one object. Such an object is
// a map, and a change of its values is one change for the reader. Fields of the document itself are
// not folded.
func (c *comparison) fold() {
	// A fold may complete a larger pattern, so repeat until nothing changes.
	for again := true; again; {
		again = false
		groups := map[changeKey][]changeKey{}
		for key := range c.found {
			for _, p := range patterns(key) {
				groups[p] = append(groups[p], key)
			}
		}
		// Fold the largest group first: a change may fit several patterns, and the most frequent
		// one is likely the map.
		var order []changeKey
		for p, keys := range groups {
			if len(keys) > manyKeys {
				order = append(order, p)
			}
		}
		slices.SortFunc(order, func(p, q changeKey) int {
			return cmp.Or(-cmp.Compare(len(groups[p]), len(groups[q])), strings.Compare(p.from+p.to, q.from+q.to))
		})
		for _, p := range order {
			// An earlier fold may have removed some of the changes.
			keys := slices.DeleteFunc(groups[p], func(key changeKey) bool { return c.found[key] == nil })
			if len(keys) > manyKeys {
				again = true
				c.foldInto(p, keys)
			}
		}
	}
}

func (c *comparison) foldInto(p changeKey, keys []changeKey) {
	// Sorted, so that the example is always the same.
	slices.SortFunc(keys, func(a, b changeKey) int { return strings.Compare(a.from+"\x00"+a.to, b.from+"\x00"+b.to) })
	whole := c.found[p]
	for _, key := range keys {
		part := c.found[key]
		delete(c.found, key)
		if whole == nil {
			one := *part
			whole = &one
			whole.From, whole.To, whole.Records = p.from, p.to, 0
		}
		// The same records may have several of the fields, so a sum would count them twice.
		whole.Records = max(whole.Records, part.Records)
		whole.Fields += max(1, part.Fields)
	}
	c.found[p] = whole
}

// patterns returns a change with the name of one field left open, for each field within an object.
func patterns(key changeKey) []changeKey {
	path := cmp.Or(key.from, key.to)
	parts := strings.Split(path, ".")
	var out []changeKey
	for i := 1; i < len(parts); i++ {
		name := parts[i]
		if name == "*" || name == anyKey {
			continue
		}
		p := key
		if key.from != "" {
			p.from = open(key.from, name, i)
			if key.to != "" {
				// A moved field may have the name at another position.
				p.to = open(key.to, name, -1)
			}
		} else {
			p.to = open(key.to, name, i)
		}
		if p != key {
			out = append(out, p)
		}
	}
	return out
}

// open replaces a name in a path by anyKey: the name at index at, or its first occurrence if at is
// negative.
func open(path, name string, at int) string {
	parts := strings.Split(path, ".")
	if at < 0 {
		at = slices.Index(parts, name)
	}
	if at < 0 {
		return path
	}
	parts[at] = anyKey
	return strings.Join(parts, ".")
}
