package bbs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/base/raced"
)

func init() { raced.DrawFewer() }

func TestMain(m *testing.M) { mongotest.Main(m) }

// The kinds of each version.
var (
	kindsV1 = []string{KindDesiredLRPs, KindActualLRPs, KindCells, KindTasks}
	kindsV2 = []string{KindDeployments, KindDefinitions, KindActualLRPs, KindCells, KindTasks}
)

// api are clients of one stack.
type api struct {
	v1       bbsv1connect.DesiredLRPServiceClient
	v2       bbsv2connect.LRPDeploymentServiceClient
	actualV1 bbsv1connect.ActualLRPServiceClient
	actualV2 bbsv2connect.ActualLRPServiceClient
}

func serve(t testing.TB, h http.Handler, opts ...connect.ClientOption) api {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return apiOf(srv.Client(), srv.URL, opts...)
}

func apiOf(h *http.Client, url string, opts ...connect.ClientOption) api {
	return api{
		bbsv1connect.NewDesiredLRPServiceClient(h, url, opts...), bbsv2connect.NewLRPDeploymentServiceClient(h, url, opts...),
		bbsv1connect.NewActualLRPServiceClient(h, url, opts...), bbsv2connect.NewActualLRPServiceClient(h, url, opts...),
	}
}

// stacks returns the v1 API over both versions of the data.
func stacks(t *testing.T) map[string]func(t *testing.T) (api, *sampletest.Store) {
	return map[string]func(t *testing.T) (api, *sampletest.Store){
		"v1 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, kindsV1...)
			return serve(t, StackV1(s, sampletest.New(t, kindsV2...))), s
		},
		"v2 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, kindsV2...)
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
