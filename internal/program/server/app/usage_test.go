package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

// TestUsageMetrics: each method and caller has a count and a time.
func TestUsageMetrics(t *testing.T) {
	t.Parallel()
	service := bbsv1.File_bbs_v1_bbs_proto.Services().Get(0)
	u := apiversion.NewUsage(apiversion.UsageConfig{Services: []protoreflect.ServiceDescriptor{service}})
	h := u.Handler(http.NotFoundHandler())
	for _, caller := range []string{"curl/8", "curl/8", "job"} {
		r := httptest.NewRequest(http.MethodPost, apiversion.Procedure(service.Methods().Get(0)), nil)
		r.Header.Set("User-Agent", caller)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(UsageMetrics(u)); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || len(families[0].GetMetric()) != 2 || families[0].GetMetric()[0].GetCounter().GetValue() != 2 {
		t.Errorf("%v, %v", families, err)
	}
}
