package cli

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// planner is a fake that plans.
type planner struct {
	fake
	plan *dbv1.PlanReport
	want string // target version asked for
}

func (p *planner) Plan(_ context.Context, r *connect.Request[dbv1.PlanRequest]) (*connect.Response[dbv1.PlanReport], error) {
	p.want = r.Msg.GetTargetVersion()
	return connect.NewResponse(p.plan), nil
}

// streamer is a planner that says how far it is.
type streamer struct {
	planner
	said []*dbv1.WorkProgress
}

func (p *streamer) StreamPlan(_ context.Context, r *connect.Request[dbv1.PlanRequest], s *connect.ServerStream[dbv1.PlanResponse]) error {
	p.want = r.Msg.GetTargetVersion()
	for _, w := range p.said {
		if err := s.Send(&dbv1.PlanResponse{Work: w}); err != nil {
			return err
		}
	}
	return s.Send(&dbv1.PlanResponse{Report: p.plan})
}

// TestPlanSaysHowFarItIs on standard error, and the report alone is the result.
func TestPlanSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	p := &streamer{said: []*dbv1.WorkProgress{{}, {Doing: "copies a sample", Done: 9, Total: 15}}}
	p.plan = &dbv1.PlanReport{FromVersion: "v1", ToVersion: "v2", Ok: true}
	out, diag, err := run(t, "plan", "--target-version", "v2", "--server", serveAPI(t, p))
	if err != nil || diag != "step 10 of 15: copies a sample\n" || !strings.HasPrefix(out, "v1 -> v2\n") || p.want != "v2" {
		t.Errorf("%v, printed %q, diagnostics %q", err, out, diag)
	}
}

func TestPlanCommand(t *testing.T) {
	t.Parallel()
	seconds, pause := int64(3700), int64(90)
	checks := []*dbv1.PlanCheck{
		{Area: "space", Subject: "v2", Verdict: dbv1.PlanCheck_OK, Text: "1.2 MiB are needed"},
		{Area: "servers", Verdict: dbv1.PlanCheck_WARNING, Text: "none is registered"},
	}
	for _, tc := range []struct {
		name string
		plan *dbv1.PlanReport
		err  error
		want []string
	}{
		{"fine", &dbv1.PlanReport{FromVersion: "v1", ToVersion: "v2", Ok: true, Checks: checks, EstimatedCopySeconds: &seconds, PredictedPauseMillis: &pause}, nil,
			[]string{"v1 -> v2\n", "OK       space    v2       1.2 MiB are needed\n", "WARNING  servers  -        none is registered\n", "copy: about 1h1m40s\n", "pause: about 90 ms\n"}},
		{"failed", &dbv1.PlanReport{FromVersion: "v1", ToVersion: "v2", Checks: append(checks, &dbv1.PlanCheck{
			Area: "oplog", Subject: "v1", Verdict: dbv1.PlanCheck_FAILED, Text: "too short: enlarge it"})}, errPlan,
			[]string{"FAILED   oplog    v1       too short: enlarge it\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api := &planner{plan: tc.plan}
			out, err := runPlan(t, api, "plan", "--target-version", "v2")
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed\n%s\nwithout %q", out, want)
				}
			}
			if api.want != "v2" {
				t.Errorf("planned for %q", api.want)
			}
			if out, err = runPlan(t, api, "plan", "--json"); !errors.Is(err, tc.err) || !strings.Contains(out, `"fromVersion":"v1"`) {
				t.Errorf("as JSON: %s, %v", out, err)
			}
		})
	}
}

// runPlan runs a command against a fake that plans.
func runPlan(t *testing.T, api *planner, args ...string) (string, error) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(api))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	out, _, err := run(t, append(args, "--server", s.Listener.Addr().String())...)
	return out, err
}
