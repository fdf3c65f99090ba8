package transform_test

import (
	"testing"

	"dbcontroller.dev/transform"
)

// silent is a mapping that does not say whether it keeps the order.
type silent struct{ transform.Mapping }

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

// TestKeepsOrder: only a mapping that can tell keeps the order of names.
func TestKeepsOrder(t *testing.T) {
	t.Parallel()
	first := ordered{under: map[string]string{"a": "b"}}
	for _, tt := range []struct {
		m      transform.Mapping
		parent string
		want   bool
	}{
		{transform.Identity{}, "", true}, {first, "a", true}, {first, "b", false},
		{struct{ transform.Identity }{}, "", false}, {silent{transform.Identity{}}, "", false}, {struct{ transform.Mapping }{first}, "a", false},
	} {
		if got := transform.KeepsOrder(tt.m, tt.parent); got != tt.want {
			t.Errorf("%#v under %q: %v", tt.m, tt.parent, got)
		}
	}
}
