package controller

import (
	"slices"
	"testing"

	"dbcontroller/config"
)

// TestRehearsalBlocksNoCluster: the fence that stops a whole cluster is never rehearsed.
func TestRehearsalBlocksNoCluster(t *testing.T) {
	t.Parallel()
	kinds := []config.Kind{{From: "a", Fence: "writeBlock"}, {From: "b", Fence: "validator"}, {From: "c"}}
	fences := func(kinds []config.Kind) (out []string) {
		for _, k := range kinds {
			out = append(out, k.Fence)
		}
		return out
	}
	if got := fences(rehearsed(kinds)); !slices.Equal(got, []string{"", "validator", ""}) {
		t.Errorf("rehearsed with %q", got)
	}
	if got := fences(kinds); !slices.Equal(got, []string{"writeBlock", "validator", ""}) {
		t.Errorf("the upgrade itself would have %q", got)
	}
}
