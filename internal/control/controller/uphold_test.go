package controller

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// electing fails a number of commits, as etcd does in an election.
type electing struct {
	coord.Store
	left *int
}

func (s electing) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if *s.left > 0 {
		*s.left--
		return 0, record.ErrUnavailable
	}
	return s.Store.Commit(ctx, conditions, ops)
}

// TestBreachIsRecordedAfterAnElection: a fence that was missing is in force again when the breach is
// recorded, so no later check finds it.
func TestBreachIsRecordedAfterAnElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 0
		f := fences{
			log:        zap.NewNop(),
			deployment: deployment.New(electing{memcoord.New(), &left}, "services/a/deployments/b", deployment.Config{}),
		}
		if _, err := f.deployment.Create(t.Context(), "v2", 1); err != nil {
			t.Fatal(err)
		}
		d, err := f.deployment.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
			Version: "v1", Location: "mem:v1", Kinds: []upgradestate.Kind{{Kind: "things", Fixed: true, Physical: "things", Fence: "validator"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		left = 3
		if err := f.noteBreaches(t.Context(), d, "v1", "things", []record.Breach{{What: "the validator was removed"}}); err != nil {
			t.Fatal(err)
		}
		if now, err := f.deployment.Get(t.Context()); err != nil || len(upgradestate.OpenBreaches(now)) != 1 || left != 0 {
			t.Errorf("recorded are %+v, %v", now.Breaches, err)
		}
		// A version that is gone by now is no reason to go on for ever.
		if err := f.noteBreaches(t.Context(), d, "v9", "things", []record.Breach{{What: "the validator was removed"}}); err == nil {
			t.Error("a breach of an unknown version is recorded")
		}
	})
}
