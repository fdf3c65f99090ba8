package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
)

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
