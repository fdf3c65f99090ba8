package vrunner_test

import (
	"slices"
	"testing"

	"dbcontroller.dev/vrunner"
)

// TestStacksOfPlaces: each place of a version has a stack of that version over its own
// namespace. Of other versions it sees one place.
func TestStacksOfPlaces(t *testing.T) {
	t.Parallel()
	type built struct {
		version string
		views   map[string]*vrunner.View
	}
	var stacks []built
	r := vrunner.New(nil, map[string]vrunner.Database{"v1": {}, "v1@b": {}, "v2@c": {}, "v2@d": {}},
		func(version string, views map[string]*vrunner.View) vrunner.Stack {
			stacks = append(stacks, built{version, views})
			return vrunner.Stack{}
		}, vrunner.Config{}, nil)
	if got := r.State().Versions; !slices.Equal(got, []string{"v1", "v1@b", "v2@c", "v2@d"}) {
		t.Errorf("the server reports that it serves %v", got)
	}
	own := map[string]map[*vrunner.View]int{"v1": {}, "v2": {}}
	foreign := map[string]map[*vrunner.View]int{"v1": {}, "v2": {}}
	for _, s := range stacks {
		if len(s.views) != 2 || s.views["v1"] == nil || s.views["v2"] == nil {
			t.Fatalf("the stack of %s has the views %v", s.version, s.views)
		}
		other := map[string]string{"v1": "v2", "v2": "v1"}[s.version]
		own[s.version][s.views[s.version]]++
		foreign[other][s.views[other]]++
	}
	for _, version := range []string{"v1", "v2"} {
		if len(own[version]) != 2 || len(foreign[version]) != 1 {
			t.Errorf("%s: %d namespaces have a stack of their own, others see %d", version, len(own[version]), len(foreign[version]))
		}
	}
}
