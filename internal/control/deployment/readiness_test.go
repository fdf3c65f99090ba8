package deployment_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/switchover"
)

// TestReadiness stands as long as it is not taken away and its lease lives.
func TestReadiness(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := memcoord.New()
	s := deployment.New(c, "services/s/deployments/d", deployment.Config{})
	is := func(want *switchover.Readiness) {
		t.Helper()
		got, err := s.Readiness(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is(nil)
	lease, err := c.Grant(ctx, time.Minute)
	check(err)
	pause := int64(90)
	o := &switchover.Readiness{ID: "u1", WaitsFor: []string{"a proof"}, PredictedPauseMillis: &pause, Rollback: "not proved yet", At: "2026-11-21T22:00:00Z"}
	check(s.PublishReadiness(ctx, o, lease.ID()))
	is(o)
	check(s.PublishReadiness(ctx, nil, lease.ID()))
	is(nil)
	check(s.PublishReadiness(ctx, nil, lease.ID())) // there is nothing to take away
	check(s.PublishReadiness(ctx, o, lease.ID()))
	check(lease.Close(ctx))
	is(nil)
}
