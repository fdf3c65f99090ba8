package typed

import (
	"fmt"
	"strings"

	"dbcontroller.dev/record"
)

// pattern is how a record's name is made of its group's: before, the group, and for a
// kind with several records middle, the record's own name, and after.
type pattern struct{ before, middle, after string }

var groupAlone = pattern{}

func parsePattern(s string, many bool) (p pattern, err error) {
	if s == "" {
		s = "{group}"
	}
	before, rest, ok := strings.Cut(s, "{group}")
	if !ok {
		return p, fmt.Errorf("key=%s: it has no {group}", s)
	}
	p.before = before
	if !many {
		if strings.Contains(rest, "{key}") {
			return p, fmt.Errorf("key=%s: a pointer is one record, whose key has no {key}", s)
		}
		p.after = rest
		return p, nil
	}
	middle, after, ok := strings.Cut(rest, "{key}")
	if !ok || middle == "" {
		return p, fmt.Errorf("key=%s: the records of a map are called {group}, something, {key}", s)
	}
	p.middle, p.after = middle, after
	return p, nil
}

// begin is the name of a single record of a group, and what those of several begin with.
func (p pattern) begin(group string) string {
	if p.middle == "" {
		return p.before + group + p.after
	}
	return p.before + group + p.middle
}

// match takes a key apart.
func (p pattern) match(k record.Key) (group, key string, err error) {
	name, ok := k.Name()
	if !ok {
		return "", "", fmt.Errorf("the key %s is not a string", k)
	}
	rest, okBefore := strings.CutPrefix(name, p.before)
	rest, okAfter := strings.CutSuffix(rest, p.after)
	group = rest
	if p.middle != "" {
		group, key, ok = strings.Cut(rest, p.middle)
	}
	if !ok || !okBefore || !okAfter || group == "" || p.middle != "" && key == "" {
		return "", "", fmt.Errorf("the name is not of the form %s{group}%s%s", p.before, p.middle, p.after)
	}
	return group, key, nil
}
