package resource

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
)

// patterns are the patterns of the names of one type. All end with the same collection and id. The
// collections of a name tell which pattern it has, so no name has two.
type patterns []pattern

// parsePatterns returns the patterns of a configuration: the given ones, or else those of the
// annotation google.api.resource of a message.
func parsePatterns(given []string, d protoreflect.MessageDescriptor, maxID int) (patterns, error) {
	given = slices.DeleteFunc(slices.Clone(given), func(text string) bool { return text == "" })
	if r, ok := proto.GetExtension(d.Options(), annotations.E_Resource).(*annotations.ResourceDescriptor); ok && len(given) == 0 {
		given = r.GetPattern()
	}
	if len(given) == 0 {
		given = []string{""} // its error says what a pattern is
	}
	var out patterns
	for _, text := range given {
		p, err := parsePattern(text, maxID)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	for _, p := range out {
		switch first := out[0]; {
		case len(out) > 1 && !p.hasParent():
			return nil, fmt.Errorf("the Pattern %q has no parent: without one, a request does not tell which of several patterns it means", p)
		case p.collection() != first.collection() || p.id() != first.id():
			return nil, fmt.Errorf("the Patterns %q and %q must end with the same collection and id", first, p)
		}
	}
	for i, p := range out {
		for j, other := range out {
			n := len(other.collections)
			switch {
			case i == j || len(p.collections) < n || !slices.Equal(p.collections[:n], other.collections):
			case len(p.collections) == n:
				return nil, fmt.Errorf("the Patterns %q and %q are ambiguous: a name has both", p, other)
			default: // lists read all names that begin with the parent and the collection
				return nil, fmt.Errorf("the Patterns %q and %q are ambiguous: names of the second begin like names of the first", other, p)
			}
		}
	}
	return out, nil
}

func (p patterns) bare() bool { return p[0].bare() }

func (p patterns) id() string { return p[0].id() }

func (p patterns) collection() string { return p[0].collection() }

func (p patterns) hasParent() bool { return p[0].hasParent() }

func (p patterns) checkNewID(field, id string) error { return p[0].checkNewID(field, id) }

func (p patterns) String() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.String()
	}
	return strings.Join(texts, " or ")
}

// parent returns the patterns of the names of parents.
func (p patterns) parent() patterns {
	out := make(patterns, len(p))
	for i, one := range p {
		out[i] = one.parent()
	}
	return out
}

// fits reports whether a name has the collections of a pattern.
func (p pattern) fits(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) != 2*len(p.ids) {
		return false
	}
	for i, collection := range p.collections {
		if parts[2*i] != collection {
			return false
		}
	}
	return true
}

// check checks the name in a field of a request.
func (p patterns) check(field, name string) error {
	for _, one := range p {
		// The error of a single pattern says more.
		if len(p) == 1 || one.fits(name) {
			return one.check(field, name)
		}
	}
	return listing.Invalid(field, "%q is not %s", name, p)
}

// scope returns the scope for the parent in a list or watch. An empty parent means all resources of
// all patterns.
func (p patterns) scope(field, parent string) (scope, error) {
	for _, one := range p {
		// Each of several patterns has a parent.
		if len(p) == 1 || parent == "" || one.parent().fits(parent) {
			s, err := one.scope(field, parent)
			// Other patterns have names with the same first id. They continue with another collection.
			if len(p) > 1 && s.begin == one.collections[0]+"/" {
				s.rest = cmp.Or(s.rest, "/") + one.collection() + "/"
			}
			return s, err
		}
	}
	return scope{}, listing.Invalid(field, "%q is not %s", parent, p.parent())
}
