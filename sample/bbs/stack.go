package bbs

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/vrunner"
)

// StackV1 serves both API versions while v1 is active: v1 over v1 data, reads of v2 over
// the v2 data that follow, a moment late. v2 may be nil where there are none.
func StackV1(v1, v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NativeV1(v1, opts...))
	if v2 != nil {
		path, native := NativeV2(v2, opts...)
		mux.Handle(path, apiversion.ReadOnly(native, reads, v1Active, opts...))
	}
	return mux
}

const v1Active = "v1 is the active version: write through bbs.v1.DesiredLRPService until the upgrade to v2 has completed"

// StackV2 serves both API versions over v2 data, while v2 is active: v1 by way of v2,
// which therefore keeps what v1 does not know of.
func StackV2(v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	path, native := NativeV2(v2, opts...)
	mux.Handle(path, native)
	mux.Handle(Table().Path(), apiversion.NewHandler(Table(), native, apiversion.Options{Handler: opts}))
	return mux
}

var reads = apiversion.Readers(Services()...)

// IsWrite reports whether a procedure, the path of its URL, may write. Unknown ones may.
func IsWrite(procedure string) bool { return !reads(procedure) }

// Usage counts the calls of both versions, to tell when v1 is no longer used.
func Usage(cfg apiversion.UsageConfig) *apiversion.Usage {
	cfg.Services = append(cfg.Services, Services()...)
	return apiversion.NewUsage(cfg)
}

// Services are those of both versions, which a stack serves.
func Services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV1, serviceV2}
}

// MountWatches mounts the watches of both API versions in front of a runner, so that a
// client's stream goes on over a flip: what the other stack sends is compared with what
// the client has.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
	mux.Handle(vrunner.NewWatchHandler[bbsv1.WatchDesiredLRPsRequest](r, vrunner.WatchProcedure[bbsv1.WatchDesiredLRPsResponse]{
		Procedure: bbsv1connect.DesiredLRPServiceWatchDesiredLRPsProcedure,
		Event: func(m *bbsv1.WatchDesiredLRPsResponse) (vrunner.Event, error) {
			return vrunner.Event{Type: vrunner.EventType(m.GetEvent()), Name: m.GetProcessGuid()}, nil
		},
		Deleted: func(guid string) *bbsv1.WatchDesiredLRPsResponse {
			return &bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_EVENT_DELETE, ProcessGuid: guid}
		},
	}, opts...))
	mux.Handle(vrunner.NewWatchHandler[bbsv2.WatchLRPDeploymentsRequest](r, vrunner.WatchProcedure[bbsv2.WatchLRPDeploymentsResponse]{
		Procedure: bbsv2connect.LRPDeploymentServiceWatchLRPDeploymentsProcedure,
		Event: func(m *bbsv2.WatchLRPDeploymentsResponse) (vrunner.Event, error) {
			return vrunner.Event{Type: vrunner.EventType(m.GetEvent()), Name: m.GetProcessGuid()}, nil
		},
		Deleted: func(guid string) *bbsv2.WatchLRPDeploymentsResponse {
			return &bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_EVENT_DELETE, ProcessGuid: guid}
		},
	}, opts...))
}
