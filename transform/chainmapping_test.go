package transform_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"dbcontroller.dev/transform"
)

// letters maps each name, field and value by a table, to nothing where it has no entry.
type letters map[string][]string

func (l letters) one(s string) (string, error) {
	if out := l[s]; len(out) == 1 {
		return out[0], nil
	}
	return "", &transform.MappingError{Field: s, Reason: "not one"}
}

func (l letters) Name(s string) (string, error)   { return l.one(s) }
func (l letters) Parent(s string) (string, error) { return l.one(s) }
func (l letters) Order(s string) (string, error)  { return l.one(s) }

func (l letters) Field(s string) ([]string, error) {
	if l[s] == nil {
		return nil, &transform.MappingError{Field: s, Reason: "none"}
	}
	return l[s], nil
}

func (l letters) Compare(c transform.Condition) (out []transform.Condition, _ error) {
	paths, err := l.Field(c.Path)
	for _, p := range paths {
		out = append(out, transform.Condition{Path: p, Op: c.Op, Values: c.Values})
	}
	return out, err
}

func TestMappingsInTurn(t *testing.T) {
	t.Parallel()
	m := transform.Mappings(letters{"a": {"b"}, "s": {"b", "c"}, "x": {"y"}, "l": {"lost"}}, letters{"b": {"d"}, "c": {"d", "e"}, "y": {"p", "q"}})
	for _, tc := range []struct {
		what string
		got  any
		err  error
		want string
	}{
		{"name", first(m.Name("a")), second(m.Name("a")), "d"},
		{"parent", first(m.Parent("a")), second(m.Parent("a")), "d"},
		{"order", first(m.Order("a")), second(m.Order("a")), "d"},
		{"order of what is split", "", second(m.Order("x")), "x: in a version in between: y: not one"},
		{"field", first(m.Field("s")), second(m.Field("s")), "[d e]"},
		{"comparison", first(m.Compare(transform.Condition{Path: "x", Op: transform.OpEqual, Values: []any{1}})), nil, "[{p == [1]} {q == [1]}]"},
		{"lost at once", "", second(m.Field("z")), "z: none"},
		{"lost in between", "", second(m.Field("l")), "l: in a version in between: lost: none"},
	} {
		got := fmt.Sprint(tc.got)
		if tc.err != nil {
			var refused *transform.MappingError
			if got = tc.err.Error(); !errors.As(tc.err, &refused) || !strings.HasPrefix(got, refused.Field+": ") {
				t.Errorf("%s: error %v names %v", tc.what, tc.err, refused)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, got, tc.want)
		}
	}
	if got, err := transform.Mappings().Name("n"); got != "n" || err != nil {
		t.Errorf("no mappings: %s, %v", got, err)
	}
}

func first[T any](v T, _ error) T        { return v }
func second[T any](_ T, err error) error { return err }

// ordered is a mapping of parents that keeps the order of names under some of them.
type ordered struct {
	transform.Identity
	under map[string]string // and what the parent is called on the other side
}

func (o ordered) Parent(s string) (string, error) {
	if to, ok := o.under[s]; ok {
		return to, nil
	}
	return "", &transform.MappingError{Field: s, Reason: "none"}
}

func (o ordered) KeepsOrder(parent string) bool { _, ok := o.under[parent]; return ok }

// TestKeepsOrder: a chain keeps the order of names where each of its mappings does, of the
// parent as it is there; and what cannot tell does not.
func TestKeepsOrder(t *testing.T) {
	t.Parallel()
	first, second := ordered{under: map[string]string{"a": "b"}}, ordered{under: map[string]string{"b": "c", "": ""}}
	for _, tt := range []struct {
		m      transform.Mapping
		parent string
		want   bool
	}{
		{transform.Identity{}, "", true}, {transform.Mappings(), "x", true}, {first, "a", true}, {first, "b", false},
		{transform.Mappings(first, second), "a", true}, {transform.Mappings(second, first), "b", false},
		{transform.Mappings(transform.Identity{}, second), "b", true}, {transform.Mappings(first, letters{}), "a", false},
		{struct{ transform.Identity }{}, "", false}, {letters{}, "", false}, {struct{ transform.Mapping }{first}, "a", false},
	} {
		if got := transform.KeepsOrder(tt.m, tt.parent); got != tt.want {
			t.Errorf("%#v under %q: %v", tt.m, tt.parent, got)
		}
	}
}
