package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestWatchesOfOperators: viewers cannot take the watches that are kept for operators.
func TestWatchesOfOperators(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	_, handler := api.NewHandler(api.New(w.Coord, w.Store, api.Config{Upgrades: upgrades{}}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.Caller{Roles: []access.Role{access.Role(r.Header.Get("Role"))}}
		handler.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel) // before the server is closed
	client := dbcontrollerv1connect.NewDeploymentServiceClient(server.Client(), server.URL)
	watch := func(role access.Role) error {
		req := connect.NewRequest(&dbv1.WatchDeploymentRequest{})
		req.Header().Set("Role", string(role))
		stream, err := client.WatchDeployment(ctx, req)
		if err == nil && !stream.Receive() {
			err = stream.Err()
		}
		return err
	}
	kept := limits.Watches / limits.OperatorShare
	for i := range limits.Watches - kept {
		if err := watch(access.Viewer); err != nil {
			t.Fatalf("watch %d of a viewer: %v", i, err)
		}
	}
	if err := watch(access.Viewer); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more of a viewer: %v", err)
	}
	for i := range kept {
		if err := watch(access.Operator); err != nil {
			t.Fatalf("watch %d of an operator: %v", i, err)
		}
	}
	if err := watch(access.Operator); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more of an operator: %v", err)
	}
}
