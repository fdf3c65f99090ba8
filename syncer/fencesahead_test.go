package syncer

import (
	"maps"
	"slices"
	"testing"

	"dbcontroller.dev/record"
)

// TestFencesAheadAfterARestart: a stream that begins between the fences of two kinds is behind the first
// one, and still before the second.
func TestFencesAheadAfterARestart(t *testing.T) {
	t.Parallel()
	at := func(v string) record.Position { return record.Position{Token: []byte(v)} }
	e := &Engine{}
	e.plan.Fences = map[string]SeenFence{"a": {Marker: "a.n1", After: at("5")}, "b": {Marker: "b.n1", After: at("7")}}
	for from, want := range map[string][]string{"4": {"a", "b"}, "5": {"a", "b"}, "6": {"b"}, "7": {"b"}, "8": nil} {
		if got := slices.Sorted(maps.Keys(e.fencesAhead(at(from)))); !slices.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", from, got, want)
		}
	}
}
