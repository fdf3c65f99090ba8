package cli

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata and docs/cli.md")

// golden compares with a file of testdata, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not current, go test ./internal/program/dbcontroller/cli -update rewrites it (-want +got):\n%s", path, diff)
	}
}

// fake is a controller's API that answers what a test wants.
type fake struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	deployment *dbv1.Deployment
	updates    []*dbv1.Deployment // of the watch
	parked     []*dbv1.ParkedRecord
	report     *dbv1.VerifyReport
	loss       *dbv1.LossReport
	tasks      []*dbv1.ListUpdatesResponse_Task
	err        error
	older      bool                                       // it knows no features
	unreadable []*dbv1.ListDeploymentsResponse_Unreadable // of a list
	got        proto.Message                              // the last request
	dry        []proto.Message                            // the requests before it that were dry runs
}

// ask notes a request.
func (f *fake) ask(m interface {
	proto.Message
	GetDryRun() bool
}) {
	if m.GetDryRun() {
		f.dry = append(f.dry, m)
	}
	f.got = m
}

func (f *fake) GetDeployment(_ context.Context, r *connect.Request[dbv1.GetDeploymentRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.got = r.Msg
	return answer(f.deployment, f.err)
}

func (f *fake) ListDeployments(context.Context, *connect.Request[dbv1.ListDeploymentsRequest]) (*connect.Response[dbv1.ListDeploymentsResponse], error) {
	return answer(&dbv1.ListDeploymentsResponse{Deployments: []*dbv1.Deployment{f.deployment}, Unreadable: f.unreadable}, f.err)
}

func (f *fake) GetVersion(ctx context.Context, r *connect.Request[dbv1.GetVersionRequest]) (*connect.Response[dbv1.Version], error) {
	if f.older {
		return f.UnimplementedDeploymentServiceHandler.GetVersion(ctx, r)
	}
	return answer(&dbv1.Version{Version: "v1.4.0", Features: api.Features()}, nil)
}

func (f *fake) BeginUpgrade(_ context.Context, r *connect.Request[dbv1.BeginUpgradeRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) AbortUpgrade(_ context.Context, r *connect.Request[dbv1.AbortUpgradeRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) Switch(_ context.Context, r *connect.Request[dbv1.SwitchRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) SetPolicy(_ context.Context, r *connect.Request[dbv1.SetPolicyRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) SetPace(_ context.Context, r *connect.Request[dbv1.SetPaceRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) Complete(_ context.Context, r *connect.Request[dbv1.CompleteRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) WaiveKind(_ context.Context, r *connect.Request[dbv1.WaiveKindRequest]) (*connect.Response[dbv1.WaiveKindResponse], error) {
	f.ask(r.Msg)
	return answer(&dbv1.WaiveKindResponse{Waived: 1200, Effects: []string{"let the switch continue without " + r.Msg.GetKind()}}, f.err)
}

func (f *fake) EstimateLoss(_ context.Context, _ *connect.Request[dbv1.EstimateLossRequest], s *connect.ServerStream[dbv1.EstimateLossResponse]) error {
	if f.err != nil {
		return f.err
	}
	if err := s.Send(&dbv1.EstimateLossResponse{Compared: 1500}); err != nil {
		return err
	}
	return s.Send(&dbv1.EstimateLossResponse{Report: f.loss})
}

func (f *fake) WatchDeployment(_ context.Context, _ *connect.Request[dbv1.WatchDeploymentRequest], s *connect.ServerStream[dbv1.Deployment]) error {
	for _, d := range f.updates {
		if err := s.Send(d); err != nil {
			return err
		}
	}
	return f.err
}

// ListParked has a page for each record.
func (f *fake) ListParked(_ context.Context, r *connect.Request[dbv1.ListParkedRequest]) (*connect.Response[dbv1.ListParkedResponse], error) {
	at, _ := strconv.Atoi(r.Msg.GetPageToken()) // 0 at first
	res := &dbv1.ListParkedResponse{}
	if at < len(f.parked) {
		res.Parked = f.parked[at : at+1]
	}
	if at+1 < len(f.parked) {
		res.NextPageToken = strconv.Itoa(at + 1)
	}
	return answer(res, f.err)
}

func (f *fake) WaiveParked(_ context.Context, r *connect.Request[dbv1.WaiveParkedRequest]) (*connect.Response[dbv1.ParkedRecord], error) {
	f.ask(r.Msg)
	return answer(&dbv1.ParkedRecord{Kind: r.Msg.GetKind(), Key: r.Msg.GetKey(), Waived: !r.Msg.GetDryRun(), Error: "cannot be transformed"}, f.err)
}

func (f *fake) Verify(_ context.Context, _ *connect.Request[dbv1.VerifyRequest], s *connect.ServerStream[dbv1.VerifyResponse]) error {
	if f.err != nil {
		return f.err
	}
	if err := s.Send(&dbv1.VerifyResponse{Progress: &dbv1.VerifyProgress{Compared: 1500}}); err != nil {
		return err
	}
	return s.Send(&dbv1.VerifyResponse{Report: f.report})
}

func answer[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// serve runs the fake and returns its address.
func serve(t *testing.T, f *fake) string {
	t.Helper()
	return serveAPI(t, f)
}

// serveAPI runs any controller's API and returns its address.
func serveAPI(t *testing.T, f dbcontrollerv1connect.DeploymentServiceHandler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(f))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s.Listener.Addr().String()
}

// run executes a command line.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, diag bytes.Buffer
	root := Command(nil)
	root.SetOut(&out)
	root.SetErr(&diag)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), diag.String(), err
}

// inTime tries something with a short --timeout and then longer ones, until one is long enough: on a
// busy machine an answer that is due comes after a short one.
func inTime(t *testing.T, try func(timeout string) error) {
	t.Helper()
	for timeout := 200 * time.Millisecond; ; timeout *= 4 {
		err := try(timeout.String())
		if err == nil {
			return
		}
		if timeout > 10*time.Second {
			t.Fatal(err)
		}
	}
}

// sample is a deployment in the middle of an upgrade, with something in every field that
// is shown.
func sample() *dbv1.Deployment {
	eta := int64(75)
	d := &dbv1.Deployment{
		Name: "services/bbs.example.com/deployments/us-west2", CurrentVersion: "v1", Epoch: 1, RingSize: 4, Revision: 90,
		UpgradeState: &dbv1.UpgradeState{
			TargetVersion: "v2", ReadyShards: []int32{0, 2}, PendingShards: []int32{1, 3},
			State: dbv1.UpgradeState_INITIAL_SYNCING, Id: "up-1", Attempt: 1, TransformHash: "0123456789abcdef",
			Policy: &dbv1.SwitchPolicy{Hold: true, DeadlineMs: 5000, MaxPauseMs: 200},
		},
		Pace: &dbv1.Pace{
			Paused: true, Reason: "backup", MaxRate: 2000, MaxSourceLoad: 60, Window: "22:00-05:00", Now: []string{"paused", "source load 72 %"},
		},
		Readiness: &dbv1.SwitchReadiness{
			WaitsFor: []string{"'resume': paused: backup", "'switch': this upgrade holds at ready", "shard 1: copy of 2 ranges", "the build of index n_1"},
			Blockers: []*dbv1.SwitchBlocker{
				{Code: "paused", Text: "'resume': paused: backup", Resolve: "'resume'"},
				{Code: "held", Text: "'switch': this upgrade holds at ready", Resolve: "'switch'"},
				{Code: "copying", Text: "shard 1: copy of 2 ranges", Resolve: "wait, or 'pace'", Shards: []int32{1}},
				{Code: "hindrance", Text: "the build of index n_1", Resolve: "wait until it ends", Version: "v1", Kind: "packages"},
			},
			Rollback: "proved for 5,000 records",
		},
		Update: &dbv1.DataUpdate{Id: "d-1", Name: "fill-region", Version: "v1", Kind: "packages", DoneShards: 2, Seen: 9000, Changed: 120},
		History: []*dbv1.HistoryEntry{
			{At: "2026-11-20T22:00:00.5Z", By: "ann@desk", What: "upgrade", Id: "up-0", From: "v1", To: "v2", Detail: "switch when ready",
				Phases: []*dbv1.PhaseTime{
					{Phase: "INITIAL_SYNCING", At: "2026-11-20T22:00:00.5Z"}, {Phase: "READY", At: "2026-11-20T22:10:00Z"},
					{Phase: "HOLD", At: "2026-11-20T22:10:00.2Z"}, {Phase: "ABORT", At: "2026-11-20T22:10:10.2Z"},
				}, Outcome: "aborted: SWITCHING passed its deadline", Ended: "2026-11-20T22:10:10.3Z"},
			{At: "2026-11-21T08:00:00Z", By: "bob@laptop", What: "pause", Detail: "backup"},
			{At: "2026-11-21T08:01:00Z", By: "bob@laptop", What: "upgrade", Id: "up-1", From: "v1", To: "v2", Detail: "hold at ready",
				Phases: []*dbv1.PhaseTime{{Phase: "INITIAL_SYNCING", At: "2026-11-21T08:01:00Z"}}},
		},
		Namespaces: []*dbv1.Namespace{
			{Version: "v1", Location: "mongo:dbc_bbs_v1", Kinds: []*dbv1.Kind{
				{Kind: "desired_lrps", PhysicalName: "desired_lrps.n0", FenceClass: "uuid", FenceGuarantee: "late writes of any kind fail"},
				{Kind: "packages", Fixed: true, PhysicalName: "packages", FenceClass: "validator", FenceGuarantee: "late deletes pass; they are reported"},
			}},
			{Version: "v2", Location: "mongo:dbc_bbs_v2", Kinds: []*dbv1.Kind{
				{Kind: "packages", Fixed: true, PhysicalName: "packages.n0", NextName: "packages.n1", FenceClass: "validator", FenceGuarantee: "late deletes pass; they are reported"},
			}},
		},
		ReverseSync: &dbv1.ReverseSync{Reason: "no switch was made yet"},
		Progress: &dbv1.Progress{
			Copied: 15000, Total: 20000, Rate: 1234.5, EtaSeconds: &eta, MaxLagMillis: new(int64(1520)), ReportingShards: 4, Verified: 8000, Mismatched: 1, Parked: 2,
			LateDeletes: 3, WaitsFor: []string{"shard 1: copy of 2 ranges", "shard 3: changes that are not applied"},
			LastError: "shard 3: apply changes: connection reset",
		},
		Servers: []*dbv1.Server{
			{Id: "server-1", Versions: []string{"v1", "v2"}, ActiveVersion: "v1", Since: "2026-11-21T07:00:00Z",
				Usage: []*dbv1.VersionUsage{{Version: "v1", Calls: 12345, Last: "2026-11-21T08:00:00Z"}, {Version: "v2"}}},
			{Id: "client-billing-7", ActiveVersion: "v1", Client: true, Acked: true},
		},
		Controllers: []string{"controller-1", "controller-2"},
	}
	for i, state := range []string{"ready", "copying", "ready", "following"} {
		s := &dbv1.ShardProgress{Shard: int32(i), Owner: "controller-1", State: state, Copied: 5000, Total: 5000, LagMillis: new(int64(12)), Applied: 321}
		switch state {
		case "copying":
			s.Copied, s.Rate, s.WaitsFor = 1500, 1234, "copy of 2 ranges"
		case "following":
			s.LagMillis, s.WaitsFor = new(int64(1520)), "changes that are not applied"
		}
		d.Progress.Shards = append(d.Progress.Shards, s)
	}
	return d
}

// switched is the deployment afterwards.
func switched() *dbv1.Deployment {
	d := sample()
	d.CurrentVersion, d.Epoch, d.UpgradeState, d.Progress = "v2", 2, nil, nil
	d.Pace, d.Readiness, d.Update = &dbv1.Pace{}, nil, nil
	d.RollbackSafe = &dbv1.RollbackSafe{Blocking: 2, Waived: 1, Reason: "2 records cannot be migrated back to v1: see 'parked', fix or waive them"}
	d.FormerNames = &dbv1.FormerNames{Unknown: "grant inprog", Uses: []*dbv1.NameUse{
		{Version: "v1", Kind: "packages", Reads: 1234, Writes: 5, Last: "2026-11-21T08:00:00Z", Users: []*dbv1.NameUser{{Application: "shop", Driver: "nodejs 6.3", Address: "10.0.0.7"}, {}}},
		{Version: "v1", Kind: "orders", Writes: 1, Last: "2026-11-21T08:00:00Z"},
	}}
	d.Retiring, d.Retired = "v0", []string{"v00", "v01"}
	d.Kept = []*dbv1.KeptNamespace{{Version: "v01", Location: "mongo:bbs_v01", Until: "2026-01-02T03:04:05Z", Collections: []string{"dbc_retired.v01.lrps.n2"}}}
	d.LastSwitch = &dbv1.LastSwitch{
		Id: "up-1", FromVersion: "v1", ToVersion: "v2", At: "2026-11-21T02:00:00Z",
		Millis: map[string]int32{"hold": 40, "fence": 30, "drain": 20, "flip": 60}, PauseMillis: 150,
	}
	return d
}
