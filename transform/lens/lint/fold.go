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
	for {
		groups := map[changeKey][]changeKey{}
		for key := range c.found {
			for _, p := range patterns(key) {
				groups[p] = append(groups[p], key)
			}
		}
		var best changeKey
		for p, keys := range groups {
			if len(keys) > manyKeys && (len(groups[best]) == 0 || cmp.Or(
				cmp.Compare(len(keys), len(groups[best])), -strings.Compare(p.from+p.to, best.from+best.to)) > 0) {
				best = p
			}
		}
		keys := groups[best]
		if len(keys) == 0 {
			return
		}
		slices.SortFunc(keys, func(a, b changeKey) int { return strings.Compare(a.from+"\x00"+a.to, b.from+"\x00"+b.to) })
		whole := c.found[best]
		for _, key := range keys {
			part := c.found[key]
			delete(c.found, key)
			if whole == nil {
				one := *part
				whole = &one
				whole.From, whole.To, whole.Records = best.from, best.to, 0
			}
			whole.Records = max(whole.Records, part.Records)
			whole.Fields += max(1, part.Fields)
		}
		c.found[best] = whole
	}
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
