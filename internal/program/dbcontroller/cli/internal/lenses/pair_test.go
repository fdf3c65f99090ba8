package lenses

import (
	"testing"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
)

// TestLensesOfOnePair: with several pairs of versions, a command works on the lenses of one.
func TestLensesOfOnePair(t *testing.T) {
	t.Parallel()
	c := clitest.Config(t, "shop", "v1 v2 v3", `
- {from: orders, to: orders, lens: one.yaml, versions: [v1, v2]}
- {from: orders, to: orders, lens: two.yaml, versions: [v2, v3]}
`)
	for name, tc := range map[string]struct {
		paths []string
		older string
	}{
		"none named":    {nil, "v1"},
		"of the second": {[]string{c.Kinds[1].Lens}, "v2"},
		"of no kind":    {[]string{"elsewhere.yaml"}, "v1"},
	} {
		kinds := ofOnePair(append(c.Kinds[:0:0], c.Kinds...), tc.paths)
		if len(kinds) != 1 || kinds[0].Older != tc.older {
			t.Errorf("%s: %+v", name, kinds)
		}
	}
	if got := ofOnePair(nil, nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
