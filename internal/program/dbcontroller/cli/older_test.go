package cli

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// TestOlderControllerConfirmsNothing: a controller that would ignore a confirmation is sent
// nothing but dry runs, whether it lacks the version, lists no feature, or is asked without a
// confirmation, which it would not miss.
func TestOlderControllerConfirmsNothing(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"complete":                 {"complete", "--version", "v1", "--confirm", "d/c/v1"},
		"complete, not confirmed":  {"complete", "--version", "v1"},
		"waive":                    {"parked", "waive", "--kind", "things", "--all", "--count", "3"},
		"rollback to the snapshot": {"rollback", "--to-snapshot", "--accept-loss", "--confirm", "d/c/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			older := &fake{deployment: clitest.Switched(), loss: &dbv1.LossReport{Confirm: "d/c/v2"}, older: true}
			silent := &featureless{fake{deployment: clitest.Switched(), loss: &dbv1.LossReport{Confirm: "d/c/v2"}}}
			for _, at := range []string{serve(t, older), serveAPI(t, silent)} {
				out, _, err := run(t, append(command, "--server", at)...)
				if exit.Of(err) != exit.Refused || !strings.Contains(err.Error(), "is older than this command and ignores --co") ||
					!strings.Contains(err.Error(), "nothing was sent: update the controllers first") || out != "" {
					t.Errorf("%v, printed %q", err, out)
				}
			}
			for _, f := range []*fake{older, &silent.fake} {
				if r, ok := f.got.(interface{ GetDryRun() bool }); ok && !r.GetDryRun() {
					t.Errorf("it was sent %v", f.got)
				}
			}
			known := &fake{deployment: clitest.Switched(), loss: &dbv1.LossReport{Confirm: "d/c/v2"}}
			if _, _, err := run(t, append(command, "--server", serve(t, known))...); err != nil {
				t.Errorf("one that knows them: %v", err)
			}
		})
	}
}

// featureless is a controller that has a version and no features.
type featureless struct{ fake }

func (*featureless) GetVersion(context.Context, *connect.Request[dbv1.GetVersionRequest]) (*connect.Response[dbv1.Version], error) {
	return connect.NewResponse(&dbv1.Version{Version: "v1.3.0"}), nil
}

// TestFeatures: each is a field of a request, and no field that confirms a call lacks one. A call
// that came with its confirmation is refused by older controllers as a whole.
func TestFeatures(t *testing.T) {
	t.Parallel()
	// An older controller forgets no rollout that it cannot read, whatever the request has.
	whole := map[string]bool{"DecideRestoredRequest.confirm": true, "RemoveDeploymentRequest.confirm": true, "ForgetRolloutRequest.confirm": true}
	confirming := map[string]bool{}
	messages := dbv1.File_dbcontroller_v1_deployment_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		for _, field := range []protoreflect.Name{"confirm", "count"} {
			if name := string(m.Name()) + "." + string(field); strings.HasSuffix(string(m.Name()), "Request") && m.Fields().ByName(field) != nil && !whole[name] {
				confirming[name] = true
			}
		}
	}
	for _, f := range api.Features() {
		if !confirming[f] {
			t.Errorf("%s is no field of a request", f)
		}
		delete(confirming, f)
	}
	for f := range confirming {
		t.Errorf("an older controller ignores %s: make it a feature, and have 'needs' ask for it", f)
	}
}

// TestListNamesTheUnreadable: a record that cannot be read hides no other one, and fails the command.
func TestListNamesTheUnreadable(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Switched(), unreadable: []*dbv1.ListDeploymentsResponse_Unreadable{{Name: "services/b/deployments/x", Reason: "get services/b/deployments/x: stored value is corrupt"}}}
	out, _, err := run(t, "list", "--server", serve(t, f))
	if !strings.Contains(out, clitest.Switched().GetName()) || exit.Of(err) != exit.Failed || err.Error() != "not listed: get services/b/deployments/x: stored value is corrupt" {
		t.Errorf("printed %q, %v", out, err)
	}
}
