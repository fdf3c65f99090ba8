package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

func TestErrorsBecomeCodes(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("outer: %w", err) }
	for _, tc := range []struct {
		err    error
		want   string
		reason refusal.Reason
	}{
		{wrap(invalid("name", "x", "y")), `invalid_argument: name "x": want y`, ""},
		{wrap(&upgradestate.RefusedError{Reason: "no\n  way"}), "failed_precondition: no way", refusal.NotInThisState},
		{wrap(upgradestate.ErrOutdated), "failed_precondition: outer: event is outdated", refusal.NotInThisState},
		{wrap(deployment.ErrNotFound), "not_found: outer: deployment does not exist", ""},
		{wrap(deployment.ErrCorrupt), "data_loss: outer: stored value is corrupt", refusal.Unreadable},
		{wrap(deployment.ErrFormat), "failed_precondition: outer: record has a newer format", refusal.ControllerTooOld},
		{wrap(verbError("plan", deployment.ErrFormat)), "failed_precondition: outer: plan: record has a newer format", refusal.ControllerTooOld},
		{wrap(verbError("verify", wrap(record.ErrUnavailable))), "unavailable: outer: verify: outer: database is not available", refusal.DatabaseUnavailable},
		{wrap(&FullError{"watches", 3, "wait"}), "resource_exhausted: there are 3 watches already, and no more may be: wait", refusal.Full},
		{wrap(errStopping), "unavailable: this controller is stopping: retry", refusal.Stopping},
		{wrap(coord.ErrUnknown), "unavailable: outer: outcome of the commit is unknown: check the deployment, then repeat the call", refusal.OutcomeUnknown},
		{fmt.Errorf("%w: %w: run x", coord.ErrUnknown, coord.ErrNoSpace), "unavailable: etcd is full: make room, check the deployment, then repeat the call: outcome of the commit is unknown: " + coord.ErrNoSpace.Error() + ": run x", refusal.OutcomeUnknown},
		{wrap(context.Canceled), "canceled: outer: context canceled", ""},
		{wrap(context.DeadlineExceeded), "deadline_exceeded: outer: context deadline exceeded", ""},
		{fmt.Errorf("%w: %w", record.ErrUnavailable, context.Canceled), "canceled: database is not available: context canceled", ""}, // by the caller
		{errors.New("no endpoint answers"), "unavailable: no endpoint answers", refusal.CoordinationUnavailable},
		{wrap(connect.NewError(connect.CodeAborted, errors.New("x"))), "outer: aborted: x", ""},
	} {
		got := connectError(tc.err)
		if reason, _ := refusal.Of(got); got.Error() != tc.want || reason != tc.reason {
			t.Errorf("got  %s, reason %q\nwant %s, reason %q", got, reason, tc.want, tc.reason)
		}
	}
	if err := connectError(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// TestServedLately: a version that clients were served from a moment ago is not retired,
// unless somebody says that this does not matter.
func TestServedLately(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	left := func(from, at string) upgradestate.Deployment {
		return upgradestate.Deployment{LastSwitch: &upgradestate.Switch{From: from, To: "v2", At: at}}
	}
	for name, tc := range map[string]struct {
		d      upgradestate.Deployment
		ignore bool
		want   string
	}{
		"lately":          {left("v1", "2026-11-22T11:30:00Z"), false, "v1 was served until 2026-11-22T11:30:00Z, less than 1h0m0s ago: wait, give a shorter --unused-for, or give --ignore-usage"},
		"ignored":         {left("v1", "2026-11-22T11:30:00Z"), true, ""},
		"long ago":        {left("v1", "2026-11-22T11:00:00Z"), false, ""},
		"another version": {left("v0", "2026-11-22T11:30:00Z"), false, ""},
		"not noted when":  {left("v1", ""), false, ""},
		"never":           {upgradestate.Deployment{}, false, ""},
	} {
		if got := servedLately(tc.d, "v1", time.Hour, tc.ignore, now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestLocationWhileASourceIsLeft: once a source that was a target before is fenced, its
// collections are hidden, and it is the version to be read all the same: the other one is not
// drained yet.
func TestLocationWhileASourceIsLeft(t *testing.T) {
	t.Parallel()
	kinds := func(hidden bool) []upgradestate.Kind {
		return []upgradestate.Kind{{Kind: "packages", Physical: "packages.n3", Fixed: true, Hidden: hidden}}
	}
	at := status.Location(upgradestate.Deployment{
		CurrentVersion: "v2",
		Namespaces: []upgradestate.Namespace{
			{Version: "v1", Location: "mongo:one", Kinds: kinds(true)}, {Version: "v2", Location: "mongo:two", Kinds: kinds(true)},
		},
		LastSwitch: &upgradestate.Switch{ID: "u1", From: "v1", To: "v2"},
		Upgrade:    &upgradestate.Upgrade{ID: "u2", TargetVersion: "v1", State: upgradestate.Switching, Attempt: 2},
	})
	if at.State != pb.Location_HOLD || at.Version != "v2" || at.Database != "two" || at.UpgradeId != "u2" || at.Attempt != 2 {
		t.Errorf("location %v", at)
	}
}

// TestLocationBeforeTheFence: until the fences are announced, a switch keeps what was written.
func TestLocationBeforeTheFence(t *testing.T) {
	t.Parallel()
	for step, unfenced := range map[upgradestate.Step]bool{
		upgradestate.StepHold: true, upgradestate.StepFence: false, upgradestate.StepDrain: false,
		upgradestate.StepSealTarget: false, upgradestate.StepSealSource: false, upgradestate.StepAbort: false,
	} {
		at := status.Location(upgradestate.Deployment{
			CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{{Version: "v1", Location: "mongo:one"}},
			Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2", State: upgradestate.Switching, Step: step, Attempt: 1},
		})
		if at.State != pb.Location_HOLD || at.Unfenced != unfenced {
			t.Errorf("in step %s: %v", step, at)
		}
	}
	steady := status.Location(upgradestate.Deployment{CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{{Version: "v1", Location: "mongo:one"}}})
	if steady.Unfenced {
		t.Errorf("without a switch: %v", steady)
	}
}

// TestLocationIdentifiesCollections: clients recognize by it the cluster that they reach. A kind
// that has no collection yet has no identity.
func TestLocationIdentifiesCollections(t *testing.T) {
	t.Parallel()
	at := status.Location(upgradestate.Deployment{
		CurrentVersion: "v1",
		Namespaces: []upgradestate.Namespace{{Version: "v1", Location: "mongo:one", Kinds: []upgradestate.Kind{
			{Kind: "packages", Physical: "packages", Fixed: true, ID: "5f0f3c1a9d4e4b7fa1c26b8e7d905a13"}, {Kind: "new", Physical: "new", Fixed: true},
		}}},
	})
	if at.State != pb.Location_OPEN || len(at.Kinds) != 2 || at.Kinds[0].Id != "5f0f3c1a9d4e4b7fa1c26b8e7d905a13" || at.Kinds[1].Id != "" {
		t.Errorf("location %v", at)
	}
}
