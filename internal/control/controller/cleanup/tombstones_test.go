package cleanup

import (
	"context"
	"slices"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// purges notes which kinds are purged.
type purges struct {
	record.Namespace
	kinds []string
}

func (p *purges) Purge(_ context.Context, tok record.Token) error {
	p.kinds = append(p.kinds, tok.Kind)
	return nil
}

// TestPurgedKinds: the tombstones of kinds that kept their name when they were sealed are
// what stops late appliers, and stay. A version that is not configured here, where this
// process leads after others have switched, is an error.
func TestPurgedKinds(t *testing.T) {
	t.Parallel()
	d := upgradestate.Deployment{CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: []upgradestate.Kind{
		{Kind: "managed", Physical: "managed.n4", Fence: "uuid"},
		{Kind: "viewed", Physical: "viewed", Fixed: true, Fence: "view"},
		{Kind: "validated", Physical: "validated", Fixed: true, Fence: "validator"},
		{Kind: "blocked", Physical: "blocked", Fixed: true, Fence: "writeBlock"},
	}}}}
	db := &purges{}
	ts := Tombstones{Namespaces: map[string]record.Namespace{"v1": db}}
	version, places := upgradestate.WritePlaces(d)
	if err := ts.purgeKinds(t.Context(), d, version, places); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(db.kinds, []string{"managed", "viewed"}) {
		t.Errorf("%v were purged", db.kinds)
	}
	if err := ts.purgeKinds(t.Context(), d, "v3", places); err == nil {
		t.Error("a version that is not configured was purged")
	}
}
