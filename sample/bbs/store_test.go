package bbs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/sample/sampletest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// api are clients of one stack.
type api struct {
	v1 bbsv1connect.DesiredLRPServiceClient
	v2 bbsv2connect.LRPDeploymentServiceClient
}

func serve(t testing.TB, h http.Handler, opts ...connect.ClientOption) api {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return api{bbsv1connect.NewDesiredLRPServiceClient(srv.Client(), srv.URL, opts...), bbsv2connect.NewLRPDeploymentServiceClient(srv.Client(), srv.URL, opts...)}
}

// stacks returns the v1 API over both versions of the data.
func stacks(t *testing.T) map[string]func(t *testing.T) (api, *sampletest.Store) {
	return map[string]func(t *testing.T) (api, *sampletest.Store){
		"v1 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, KindDesiredLRPs)
			return serve(t, StackV1(s, sampletest.New(t, KindDeployments, KindDefinitions))), s
		},
		"v2 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, KindDeployments, KindDefinitions)
			return serve(t, StackV2(s)), s
		},
		"v2 data, adapted": adaptedStack,
	}
}

// wantTold compares all that a client is told: the same over either version's data, and
// nothing of kinds and places that its API does not have.
func wantTold(t testing.TB, err error, text string) {
	t.Helper()
	if coded := new(connect.Error); !errors.As(err, &coded) || coded.Message() != text {
		t.Errorf("told %v, want %q", err, text)
	}
}
