package bbs

import (
	"net/http"

	"connectrpc.com/connect"

	bbsv1 "dbcontroller/gen/bbs/v1"
	"dbcontroller/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller/gen/bbs/v2"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
	"dbcontroller/vrunner"
)

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
