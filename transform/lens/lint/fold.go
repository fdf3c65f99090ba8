package lint

import (
	"cmp"
	"slices"
	"strings"
)

// manyKeys is from how many fields on, which share all but their names, an object is taken for
// a map of keys.
const manyKeys = 20

// anyKey stands for the names of such fields.
const anyKey = "<key>"

// fold puts changes that differ only in the names of many fields of one object into one: what
// happens to the values of a map happens to all of them, and is one thing to read. Fields of
// the document itself are not folded.
func (c *comparison) fold() {
	for again := true; again; {
		again = false
		groups := map[changeKey][]changeKey{}
		for key := range c.found {
			for _, p := range patterns(key) {
				groups[p] = append(groups[p], key)
			}
		}
		// The largest first: a change of two open names is taken for what most have in common.
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
			keys := slices.DeleteFunc(groups[p], func(key changeKey) bool { return c.found[key] == nil })
			if len(keys) > manyKeys {
				again = true
				c.foldInto(p, keys)
			}
		}
	}
}

func (c *comparison) foldInto(p changeKey, keys []changeKey) {
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
		whole.Records = max(whole.Records, part.Records)
		whole.Fields += max(1, part.Fields)
	}
	c.found[p] = whole
}

// patterns are a change with one name of a field left open, for each that is within an object.
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

// open leaves a name in a path open: that at a place, or the first one that is called so.
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
