package api_test

import (
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

// asBegun has the transform of deploymenttest.World.
type asBegun struct{}

func (asBegun) TransformHash(string, string) (string, error) { return "h1", nil }

// TestDecideRestored: a dry run names the confirmation, the loss can be counted, and only the right
// confirmation decides.
func TestDecideRestored(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	d := w.Begin(t)
	a := serveWith(t, w, api.Config{Upgrades: asBegun{}, Loss: &lossOf{report: &pb.LossReport{Compared: 40, Created: 2, Changed: 1}}})
	const right = name + "/replicaSet/c1/mongo:dbc_v1"
	a.fails(t, "DecideRestored", `{}`, `invalid_argument: follow "false": want either it or keep`)
	var dry struct {
		Effects []string
		Confirm string
	}
	a.ok(t, "DecideRestored", `{"follow": true, "dryRun": true}`, &dry)
	if dry.Confirm != "" {
		t.Errorf("without a decision to make the dry run asks for %q", dry.Confirm)
	}
	type report struct{ Compared, Confirm string }
	counted := func() (*report, error) {
		next, end, err := a.stream(t.Context(), "EstimateLoss", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		var m struct{ Report *report }
		for m.Report == nil {
			if err := next(&m); err != nil {
				return nil, err
			}
		}
		return m.Report, nil
	}
	if _, err := counted(); err == nil || err.Error() != "failed_precondition: estimate loss: no switch was made yet, so there is no snapshot to return to" {
		t.Errorf("before the restore: %v", err)
	}
	w.Apply(t, upgradestate.FoundRestored{Restored: upgradestate.Restored{Version: "v1", What: "older"}, Epoch: d.Epoch})
	if r, err := counted(); err != nil || r.Compared != "40" || r.Confirm != right {
		t.Errorf("after the restore: %v, %v", r, err)
	}
	for _, choice := range []string{"follow", "keep"} {
		a.ok(t, "DecideRestored", `{"`+choice+`": true, "dryRun": true}`, &dry)
		if dry.Confirm != right || len(dry.Effects) == 0 {
			t.Errorf("the dry run of %s asks for %q, effects %q", choice, dry.Confirm, dry.Effects)
		}
	}
	a.fails(t, "DecideRestored", `{"follow": true}`, "failed_precondition: restored: nothing is changed yet: of 40 compared groups, 2 are only in v1, 1 differ, and 0 are only in v2: --follow drops the last two, as they are in v2; to do it, give --confirm "+right)
	for _, wrong := range []string{name, name + "/replicaSet/c2/mongo:dbc_v2"} {
		a.fails(t, "DecideRestored", `{"follow": true, "confirm": "`+wrong+`"}`, `failed_precondition: restored: "`+wrong+`" does not confirm it for v1 of this deployment: it would decide which data count; to do that, give --confirm `+right)
	}
	a.verb(t, "DecideRestored", `{"follow": true, "confirm": "`+right+`"}`, "rebuild all of v2 from it")
}
