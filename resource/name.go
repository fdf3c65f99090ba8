package resource

import (
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/apiversion/listing"
)

// pattern describes the names of resources: the collection in front of each id, and what each id is
// called. A pattern of a single id has no collection.
type pattern struct {
	collections, ids []string
	max              int // longest id in bytes
}

// defaultMaxID is the longest id, in bytes, unless a table sets another limit.
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

// bare reports whether the pattern is a single id.
func (p pattern) bare() bool { return len(p.collections) == 0 }

// id returns what the last id is called.
func (p pattern) id() string { return p.ids[len(p.ids)-1] }

// collection returns the collection of the resources, or "" for a single id.
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

// parent returns the pattern of the names of parents.
func (p pattern) parent() pattern {
	n := len(p.ids) - 1
	return pattern{p.collections[:n], p.ids[:n], p.max}
}

// hasParent reports whether resources belong to parents.
func (p pattern) hasParent() bool { return len(p.ids) > 1 }

// anyID stands for all ids in the parent of a list or watch.
const anyID = "-"

func (p pattern) checkID(id string) error {
	switch {
	case id == "":
		return errors.New("an id is empty")
	case len(id) > p.max:
		return fmt.Errorf("an id has %d bytes, at most %d are allowed", len(id), p.max)
	case strings.ContainsAny(id, "/\x00"):
		return fmt.Errorf("the id %q must not contain '/' or NUL", id)
	// A resource with this id could not be listed alone.
	case id == anyID && !p.bare():
		return fmt.Errorf("the id must not be %q, which stands for all of them", anyID)
	}
	return nil
}

// check checks the name in a field of a request.
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

// CheckName checks the value of a field that holds the name of another resource. pattern is that
// resource's Config.Pattern. An id may have at most 128 bytes. The error names the field.
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

// scope is the range of names of a list or watch. All names begin with begin. If rest is not empty,
// the names have any id directly after prefix, and then continue with rest.
type scope struct{ prefix, rest, begin string }

// scope returns the scope for the parent in a list or watch. An empty parent means all resources.
// The first id of the parent may be "-", for all ids.
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
	// The parent's pattern refuses "-" as an id, so a valid id replaces it for the check.
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

// narrow returns the names of a scope that begin with a prefix. ok is false if there can be none.
func (s scope) narrow(prefix string) (narrow scope, ok bool) {
	// Two ranges overlap only if one prefix begins with the other.
	if strings.HasPrefix(prefix, s.begin) {
		s.begin = prefix
		return s, true
	}
	return s, strings.HasPrefix(s.begin, prefix)
}

// skip returns the name after which to continue if name is outside the scope. ok is false if it is
// inside.
func (s scope) skip(name string) (after string, ok bool) {
	// Without the skip, a list of all parents would read every other collection below them.
	first, _, _ := strings.Cut(strings.TrimPrefix(name, s.prefix), "/")
	begin := s.prefix + first + s.rest
	switch {
	case s.rest == "" || strings.HasPrefix(name, begin):
		return "", false
	case name < begin:
		return begin, true
	default:
		return s.prefix + first + "0", true // '0' follows '/': after all names with this id
	}
}

func (s scope) holds(name string) bool {
	_, skipped := s.skip(name)
	return !skipped && strings.HasPrefix(name, s.begin)
}
