package spectest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/proxy"
)

// place is the controllers of a deployment that always report the same place.
type place struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	location *pb.Location
	stop     context.Context //nolint:containedctx // of the test
}

// deploy makes a deployment whose collections have other names than those of the application.
func deploy(t *testing.T, database string, collections []string, uri string) proxy.Deployment {
	t.Helper()
	p := &place{stop: t.Context(), location: &pb.Location{
		State: pb.Location_OPEN, Version: "v1", Database: "moved-" + database, Revision: 1, Epoch: 1, Deployment: database,
	}}
	kinds := map[string]string{}
	for i, name := range collections {
		kind := fmt.Sprint("kind", i)
		kinds[name] = kind
		p.location.Kinds = append(p.location.Kinds, &pb.KindLocation{
			Kind: kind, Database: p.location.GetDatabase(), Collection: "moved-" + name, Fixed: true, Fence: "view",
		})
	}
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(p))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return proxy.Deployment{
		Name: database, Application: "spec", Controllers: []string{server.URL}, Database: database, Collections: kinds,
		URIs: map[string]string{"v1": uri},
	}
}

func (p *place) RegisterClient(_ context.Context, r *connect.Request[pb.RegisterClientRequest]) (*connect.Response[pb.RegisterClientResponse], error) {
	return connect.NewResponse(&pb.RegisterClientResponse{ClientId: r.Msg.GetClientId(), TtlMs: r.Msg.GetTtlMs(), Location: p.location}), nil
}

func (p *place) DeregisterClient(context.Context, *connect.Request[pb.DeregisterClientRequest]) (*connect.Response[pb.DeregisterClientResponse], error) {
	return connect.NewResponse(&pb.DeregisterClientResponse{}), nil
}

func (p *place) GetLocation(ctx context.Context, r *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	if r.Msg.GetWaitRevision() >= p.location.GetRevision() { // nothing newer comes
		wait := time.NewTimer(time.Duration(r.Msg.GetTimeoutMs()) * time.Millisecond)
		defer wait.Stop()
		select {
		case <-ctx.Done():
		case <-p.stop.Done():
		case <-wait.C:
		}
	}
	return connect.NewResponse(p.location), nil
}
