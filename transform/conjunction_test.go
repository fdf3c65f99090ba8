package transform_test

import (
	"errors"
	"reflect"
	"testing"

	"dbcontroller.dev/transform"
)

// whole is a mapping that sees all comparisons at once.
type whole struct{ transform.Identity }

func (whole) CompareAll(cs []transform.Condition) ([]transform.Condition, error) { return cs[:1], nil }

// refusing maps no comparison of b.
type refusing struct{ transform.Identity }

func (refusing) Compare(c transform.Condition) ([]transform.Condition, error) {
	if c.Path == "b" {
		return nil, &transform.MappingError{Field: c.Path, Reason: "not there"}
	}
	return []transform.Condition{c, c}, nil
}

func TestCompareAll(t *testing.T) {
	t.Parallel()
	a := transform.Condition{Path: "a", Op: transform.OpHas}
	b := transform.Condition{Path: "b", Op: transform.OpHas}
	for _, tc := range []struct {
		name    string
		mapping transform.Mapping
		given   []transform.Condition
		want    []transform.Condition
	}{
		{"one by one", refusing{}, []transform.Condition{a, a}, []transform.Condition{a, a, a, a}},
		{"together", whole{}, []transform.Condition{a, b}, []transform.Condition{a}},
		{"identity", transform.Identity{}, []transform.Condition{a, b}, []transform.Condition{a, b}},
	} {
		if got, err := transform.CompareAll(tc.mapping, tc.given); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
	var refused *transform.MappingError
	if got, err := transform.CompareAll(refusing{}, []transform.Condition{a, b}); !errors.As(err, &refused) || refused.Field != "b" {
		t.Errorf("%v, %v", got, err)
	}
}
