package comparison

import (
	"maps"
	"slices"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestSealsOfATarget: a kind whose seal is only announced is read up to that seal, and not up to the
// name or mark that it has now.
func TestSealsOfATarget(t *testing.T) {
	t.Parallel()
	seal := func(to string) *upgradestate.Pending {
		return &upgradestate.Pending{Reason: upgradestate.PendingSeal, To: to}
	}
	got := seals(upgradestate.Namespace{Kinds: []upgradestate.Kind{
		{Kind: "set", Physical: "set.n2"},
		{Kind: "announced", Physical: "announced.n1", Pending: seal("announced.n2")},
		{Kind: "marked", Physical: "marked", Fenced: "marked.n1", Pending: seal("marked.n2")},
	}})
	want := map[string][]string{"set": {"set.n2", ""}, "announced": {"announced.n2"}, "marked": {"marked.n2"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}
