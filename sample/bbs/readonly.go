package bbs

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	bbsv2 "dbcontroller/gen/bbs/v2"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
)

// readOnlyV2 serves v2 while v1 is active: reads show what the sync has brought, a moment
// late; writes have to go through v1.
type readOnlyV2 struct{ nativeV2 }

var _ bbsv2connect.LRPDeploymentServiceHandler = readOnlyV2{}

// ReadOnlyV2 returns the v2 API over v2 data that follows active v1 data, and the path to
// mount it at.
func ReadOnlyV2(store Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv2connect.NewLRPDeploymentServiceHandler(readOnlyV2{nativeV2{store: store}}, opts...)
}

var errV1Active = errors.New("v1 is the active version: write through bbs.v1.DesiredLRPService until the upgrade to v2 has completed")

func refused() error { return connect.NewError(connect.CodeFailedPrecondition, errV1Active) }

func (readOnlyV2) CreateLRPDeployment(context.Context, *connect.Request[bbsv2.CreateLRPDeploymentRequest]) (*connect.Response[bbsv2.CreateLRPDeploymentResponse], error) {
	return nil, refused()
}

func (readOnlyV2) UpdateLRPDeployment(context.Context, *connect.Request[bbsv2.UpdateLRPDeploymentRequest]) (*connect.Response[bbsv2.UpdateLRPDeploymentResponse], error) {
	return nil, refused()
}

func (readOnlyV2) AddDefinition(context.Context, *connect.Request[bbsv2.AddDefinitionRequest]) (*connect.Response[bbsv2.AddDefinitionResponse], error) {
	return nil, refused()
}

func (readOnlyV2) ActivateDefinition(context.Context, *connect.Request[bbsv2.ActivateDefinitionRequest]) (*connect.Response[bbsv2.ActivateDefinitionResponse], error) {
	return nil, refused()
}

func (readOnlyV2) DeleteLRPDeployment(context.Context, *connect.Request[bbsv2.DeleteLRPDeploymentRequest]) (*connect.Response[bbsv2.DeleteLRPDeploymentResponse], error) {
	return nil, refused()
}
