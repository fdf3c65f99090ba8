package typed

import (
	"fmt"
	"strings"

	"dbcontroller.dev/record"
)

// pattern is the form of record names in a group: before, the group's name, and after. A kind with
// several records has middle and the record's own name in front of after.
type pattern struct{ before, middle, after string }

// groupAlone is the pattern of a record whose name is the group's name.
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
	// An empty separator is refused: the group's name could not be told apart from the record's own
	// name.
	middle, after, ok := strings.Cut(rest, "{key}")
	if !ok || middle == "" {
		return p, fmt.Errorf("key=%s: the records of a map are called {group}, something, {key}", s)
	}
	p.middle, p.after = middle, after
	return p, nil
}

// begin returns the name of a group's one record, or the prefix of its many records.
func (p pattern) begin(group string) string {
	if p.middle == "" {
		return p.before + group + p.after
	}
	return p.before + group + p.middle
}

// match splits a key into the group's name and the record's own name.
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
