package secrets

import (
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/apiversion/listing"
)

// pattern is how a version names secrets: what stands before each id of a name.
type pattern []string

var (
	patternV1 = pattern{"projects", "secrets"}            // projects/{project}/secrets/{secret}
	patternV2 = pattern{"projects", "regions", "secrets"} // projects/{project}/regions/{region}/secrets/{secret}
)

func (p pattern) String() string {
	parts := make([]string, len(p))
	for i, collection := range p {
		parts[i] = collection + "/{" + strings.TrimSuffix(collection, "s") + "}"
	}
	return strings.Join(parts, "/")
}

// parent is the pattern of the names of parents.
func (p pattern) parent() pattern { return p[:len(p)-1] }

// maxID bounds each id of a name.
const maxID = 128

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("an id is empty")
	case len(id) > maxID:
		return fmt.Errorf("an id has %d bytes, at most %d are allowed", len(id), maxID)
	case strings.ContainsAny(id, "/\x00") || id == "-":
		return fmt.Errorf("the id %q must not contain '/' or NUL, nor be \"-\"", id)
	}
	return nil
}

// check checks the name that a field of a request holds.
func (p pattern) check(field, name string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 2*len(p) {
		return listing.Invalid(field, "%q is not %s", name, p)
	}
	for i, collection := range p {
		if parts[2*i] != collection {
			return listing.Invalid(field, "%q is not %s", name, p)
		}
		if err := checkID(parts[2*i+1]); err != nil {
			return listing.Invalid(field, "%s", err)
		}
	}
	return nil
}

// child is the name of a new secret.
func (p pattern) child(parent, id string) (string, error) {
	if err := p.parent().check("parent", parent); err != nil {
		return "", err
	}
	if err := checkID(id); err != nil {
		return "", listing.Invalid("secret_id", "%s", err)
	}
	return parent + "/" + p[len(p)-1] + "/" + id, nil
}

// anyProject stands for all projects in a parent.
const anyProject = "projects/-/"

// scope is what a parent holds: all names with a prefix or, of all projects, a region.
type scope struct{ prefix, region string }

// scope reads the parent of a list or watch; empty is all there is.
func (p pattern) scope(parent string) (scope, error) {
	if parent == "" {
		return scope{}, nil
	}
	rest, all := strings.CutPrefix(parent+"/", anyProject)
	named := parent
	if all {
		named = strings.TrimSuffix("projects/any/"+rest, "/")
	}
	switch err := p.parent().check("parent", named); {
	case err != nil:
		return scope{}, err
	case !all:
		return scope{prefix: parent + "/" + p[len(p)-1] + "/"}, nil
	case rest == "":
		return scope{prefix: "projects/"}, nil
	default:
		return scope{prefix: "projects/", region: "/" + rest}, nil
	}
}

// skip tells where to go on after a name that is not in the scope; ok is false for one
// that is.
func (s scope) skip(name string) (after string, ok bool) {
	project, _, _ := strings.Cut(strings.TrimPrefix(name, s.prefix), "/")
	begin := s.prefix + project + s.region
	switch {
	case s.region == "" || strings.HasPrefix(name, begin):
		return "", false
	case name < begin:
		return begin, true
	default:
		return s.prefix + project + "0", true // '0' follows '/': the end of the project
	}
}
