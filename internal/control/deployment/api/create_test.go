package api_test

import (
	"context"
	"dbcontroller.dev/internal/control/deployment/api"
	"errors"
	"testing"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
)

// beginning is a controller that is configured with v1 and v2.
type beginning struct {
	at  string
	err error
}

func (b beginning) InitialVersion(context.Context) (string, error) { return b.at, b.err }
func (beginning) Configured() ([]string, int)                      { return []string{"v1", "v2"}, 8 }

// TestCreateOwn: a controller knows where its own deployment may begin.
func TestCreateOwn(t *testing.T) {
	t.Parallel()
	const own = "services/bbs/deployments/own"
	for _, tc := range []struct {
		name    string
		req     *pb.CreateDeploymentRequest
		decides beginning
		want    string // version; empty: refused
	}{
		{"where it decides", &pb.CreateDeploymentRequest{}, beginning{at: "v2"}, "v2"},
		{"where it is told", &pb.CreateDeploymentRequest{Version: "v1"}, beginning{at: "v2"}, "v1"},
		{"although it cannot decide", &pb.CreateDeploymentRequest{Version: "v1"}, beginning{err: errors.New("both hold data")}, "v1"},
		{"it cannot decide", &pb.CreateDeploymentRequest{}, beginning{err: errors.New("both hold data")}, ""},
		{"a version that it does not know", &pb.CreateDeploymentRequest{Version: "v3"}, beginning{at: "v2"}, ""},
		{"another ring than configured", &pb.CreateDeploymentRequest{RingSize: 16}, beginning{at: "v2"}, ""},
	} {
		for _, dry := range []bool{true, false} {
			c := memcoord.New()
			store := deployment.New(c, own, deployment.Config{})
			service := api.New(c, store, api.Config{Initial: tc.decides})
			tc.req.DryRun = dry
			res, err := service.CreateDeployment(t.Context(), connect.NewRequest(tc.req))
			if (err != nil) != (tc.want == "") {
				t.Errorf("%s: got %v", tc.name, err)
			}
			if err == nil && (res.Msg.Deployment.CurrentVersion != tc.want || res.Msg.Deployment.RingSize != 8 || !res.Msg.Created) {
				t.Errorf("%s: got %v, want %s", tc.name, res.Msg, tc.want)
			}
			if _, err := store.Get(t.Context()); (err == nil) != (tc.want != "" && !dry) {
				t.Errorf("%s, dry run %v: afterwards %v", tc.name, dry, err)
			}
		}
	}
}
