package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// Two kinds each, so that one can be confirmed while the other is pending.
var (
	managedAndValidator = explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "validator", Restore: "own validator"},
	}}
	managedAndView = explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"},
	}}
	managedOnly = explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "uuid"}, {Kind: "domains", Fence: "uuid"},
	}}
	threeClasses = explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"}, {Kind: "logs", Fixed: true, Fence: "validator"},
	}}
	fewRetries = explore.Config{Shards: 2, Retries: 1, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}}}
	loaders    = explore.Config{Shards: 1, Loaders: true, Hashes: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"}}}
	viewLoads  = explore.Config{Shards: 2, Loaders: true, Kinds: managedAndView.Kinds}
	markLoads  = explore.Config{Shards: 2, Loaders: true, Kinds: managedAndValidator.Kinds}
	twoHashes  = explore.Config{Shards: 1, Hashes: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"}}}
	wholeLife  = explore.Config{Shards: 2, Life: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}}}
	restored   = explore.Config{Shards: 1, Restores: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"}}}
	undecided  = explore.Config{Shards: 1, Undecided: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "view"}}}
	restoredBy = explore.Config{Shards: 1, Restores: true, Kinds: []us.Kind{{Kind: "lrps", Fence: "uuid"}, {Kind: "users", Fixed: true, Fence: "validator"}}}
	replaced   = explore.Config{Shards: 1, Replaces: true, Kinds: []us.Kind{{Kind: "users", Fixed: true, Fence: "view"}}}
	byMark     = explore.Config{Shards: 2, Kinds: []us.Kind{
		{Kind: "lrps", Fence: "validator"}, {Kind: "users", Fixed: true, Fence: "writeBlock"},
	}}
)

// Every guarantee of the package comment, in every state that can be reached.
func TestExploration(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]explore.Config{
		"managed and validator":        managedAndValidator,
		"managed and view":             managedAndView,
		"managed only":                 managedOnly,
		"three classes":                threeClasses,
		"managed by validator, blocks": byMark,
		"every verb":                   wholeLife,
		"few retries":                  fewRetries,
		"two transformations":          twoHashes,
		"loaders, two transformations": loaders,
		"loaders and view":             viewLoads,
		"loaders and validator":        markLoads,
		"restored":                     restored,
		"restored, by validator":       restoredBy,
		"undecided":                    undecided,
		"replaced":                     replaced,
		"undecided, every verb":        {Shards: 1, Life: true, Undecided: true, Kinds: wholeLife.Kinds},
		"restored, every verb":         {Shards: 1, Life: true, Restores: true, Kinds: wholeLife.Kinds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := explore.Run(explore.Real(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			// The states form cycles, so that any number of flips each way has been walked.
			flips := map[string]int{}
			for _, e := range g.Edges {
				if _, ok := e.Event.(us.Flip); ok {
					flips[g.Records[e.From].CurrentVersion]++
				}
			}
			if flips["v1"] == 0 || flips["v2"] == 0 || g.Aborts == 0 {
				t.Fatalf("flips from %v and %d aborts: the exploration does not go where it should", flips, g.Aborts)
			}
			t.Logf("%d states, %d steps, %d flips, %d aborts", len(g.Records), len(g.Edges), g.Flips, g.Aborts)
		})
	}
}
