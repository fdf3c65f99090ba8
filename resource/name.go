package resource

import (
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/apiversion/listing"
)

// pattern is how resources are named: what stands before each id of a name, and what each
// id is called. A pattern of one id has nothing before it.
type pattern struct {
	collections, ids []string
	max              int // bytes of an id
}

// defaultMaxID is how many bytes an id has at most where no table says otherwise.
const defaultMaxID = 128

func parsePattern(text string, maxID int) (pattern, error) {
	p := pattern{max: maxID}
	parts := strings.Split(text, "/")
	variable := func(s string) (string, bool) {
		name, opened := strings.CutPrefix(s, "{")
		name, closed := strings.CutSuffix(name, "}")
		return name, opened && closed && name != ""
	}
	if id, ok := variable(text); ok && len(parts) == 1 {
		p.ids = []string{id}
		return p, nil
	}
	if len(parts)%2 != 0 {
		return p, fmt.Errorf("the Pattern %q is not collections and ids in turn, as in shelves/{shelf}/books/{book}", text)
	}
	for i := 0; i < len(parts); i += 2 {
		id, ok := variable(parts[i+1])
		if _, isID := variable(parts[i]); !ok || isID || parts[i] == "" {
			return p, fmt.Errorf("the Pattern %q is not collections and ids in turn, as in shelves/{shelf}/books/{book}", text)
		}
		p.collections, p.ids = append(p.collections, parts[i]), append(p.ids, id)
	}
	return p, nil
}

// bare reports a pattern of one id.
func (p pattern) bare() bool { return len(p.collections) == 0 }

// id is what the last id is called.
func (p pattern) id() string { return p.ids[len(p.ids)-1] }

// collection is where new resources are made, "" for a pattern of one id.
func (p pattern) collection() string {
	if p.bare() {
		return ""
	}
	return p.collections[len(p.collections)-1]
}

func (p pattern) String() string {
	if p.bare() {
		return "{" + p.id() + "}"
	}
	parts := make([]string, len(p.ids))
	for i, collection := range p.collections {
		parts[i] = collection + "/{" + p.ids[i] + "}"
	}
	return strings.Join(parts, "/")
}

// parent is the pattern of the names of parents.
func (p pattern) parent() pattern {
	n := len(p.ids) - 1
	return pattern{p.collections[:n], p.ids[:n], p.max}
}

// hasParent reports whether resources are made within others.
func (p pattern) hasParent() bool { return len(p.ids) > 1 }

// anyID stands for all ids.
const anyID = "-"

func (p pattern) checkID(id string) error {
	switch {
	case id == "":
		return errors.New("an id is empty")
	case len(id) > p.max:
		return fmt.Errorf("an id has %d bytes, at most %d are allowed", len(id), p.max)
	case strings.ContainsAny(id, "/\x00"):
		return fmt.Errorf("the id %q must not contain '/' or NUL", id)
	case id == anyID && !p.bare():
		return fmt.Errorf("the id must not be %q, which stands for all of them", anyID)
	}
	return nil
}

// check checks the name that a field of a request holds.
func (p pattern) check(field, name string) error {
	if p.bare() {
		return p.checkNewID(field, name)
	}
	parts := strings.Split(name, "/")
	if len(parts) != 2*len(p.ids) {
		return listing.Invalid(field, "%q is not %s", name, p)
	}
	for i, collection := range p.collections {
		if parts[2*i] != collection {
			return listing.Invalid(field, "%q is not %s", name, p)
		}
		if err := p.checkID(parts[2*i+1]); err != nil {
			return listing.Invalid(field, "%s", err)
		}
	}
	return nil
}

// CheckName checks the name of another resource, as a field of a message holds it, against
// that one's pattern. Ids have at most 128 bytes.
func CheckName(field, name, pattern string) error {
	p, err := parsePattern(pattern, defaultMaxID)
	if err != nil {
		return err
	}
	return p.check(field, name)
}

func (p pattern) checkNewID(field, id string) error {
	if id == "" {
		return listing.Invalid(field, "is missing")
	}
	if err := p.checkID(id); err != nil {
		return listing.Invalid(field, "%s", err)
	}
	return nil
}

// scope is what a list or watch is about: the names that begin with begin and, of all ids
// that come first behind prefix, only those that go on with rest.
type scope struct{ prefix, rest, begin string }

// scope reads the parent of a list or watch; empty is all there is. Its first id may stand
// for all.
func (p pattern) scope(field, parent string) (scope, error) {
	if parent == "" {
		return scope{}, nil
	}
	if !p.hasParent() {
		return scope{}, listing.Invalid(field, "must be empty: %s has no parent", p)
	}
	first := p.collections[0] + "/"
	rest, all := strings.CutPrefix(parent+"/", first+anyID+"/")
	named := parent
	if all {
		named = strings.TrimSuffix(first+"any/"+rest, "/")
	}
	if err := p.parent().check(field, named); err != nil {
		return scope{}, err
	}
	if !all {
		begin := parent + "/" + p.collection() + "/"
		return scope{prefix: begin, begin: begin}, nil
	}
	if rest != "" {
		rest = "/" + rest
	}
	return scope{prefix: first, rest: rest, begin: first}, nil
}

// narrow returns the names of a scope that begin with a prefix; ok is false if none can.
func (s scope) narrow(prefix string) (narrow scope, ok bool) {
	if strings.HasPrefix(prefix, s.begin) {
		s.begin = prefix
		return s, true
	}
	return s, strings.HasPrefix(s.begin, prefix)
}

// skip returns where to go on after a name that is not in the scope; ok is false for one
// that is.
func (s scope) skip(name string) (after string, ok bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, s.prefix), "/")
	begin := s.prefix + first + s.rest
	switch {
	case s.rest == "" || strings.HasPrefix(name, begin):
		return "", false
	case name < begin:
		return begin, true
	default:
		return s.prefix + first + "0", true // '0' follows '/': the end of what has this id
	}
}

func (s scope) holds(name string) bool {
	_, skipped := s.skip(name)
	return !skipped && strings.HasPrefix(name, s.begin)
}
