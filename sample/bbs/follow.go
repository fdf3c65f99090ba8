package bbs

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

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
			return event(m.GetEvent().Number(), m.GetProcessGuid()), nil
		},
		Deleted: func(guid string) *bbsv1.WatchDesiredLRPsResponse {
			return &bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_EVENT_DELETE, ProcessGuid: guid}
		},
	}, opts...))
	mux.Handle(vrunner.NewWatchHandler[bbsv2.WatchLRPDeploymentsRequest](r, vrunner.WatchProcedure[bbsv2.WatchLRPDeploymentsResponse]{
		Procedure: bbsv2connect.LRPDeploymentServiceWatchLRPDeploymentsProcedure,
		Event: func(m *bbsv2.WatchLRPDeploymentsResponse) (vrunner.Event, error) {
			return event(m.GetEvent().Number(), m.GetProcessGuid()), nil
		},
		Deleted: func(guid string) *bbsv2.WatchLRPDeploymentsResponse {
			return &bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_EVENT_DELETE, ProcessGuid: guid}
		},
	}, opts...))
}

// event says what a message of either version tells: their enums are the same.
func event(number protoreflect.EnumNumber, guid string) vrunner.Event {
	e := vrunner.Event{Name: guid}
	switch bbsv1.WatchDesiredLRPsResponse_Event(number) {
	case bbsv1.WatchDesiredLRPsResponse_EVENT_PUT:
		e.Type = vrunner.EventPut
	case bbsv1.WatchDesiredLRPsResponse_EVENT_DELETE:
		e.Type = vrunner.EventDelete
	case bbsv1.WatchDesiredLRPsResponse_EVENT_CAUGHT_UP:
		e.Type = vrunner.EventLevel
	case bbsv1.WatchDesiredLRPsResponse_EVENT_UNSPECIFIED:
		e.Type = vrunner.EventOther
	}
	return e
}
