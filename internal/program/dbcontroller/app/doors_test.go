package app

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/transform"
)

// TestPageIsTurnedOff: the page is there unless the configuration or a flag turns it off.
func TestPageIsTurnedOff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		configured, noPage bool
		want               int
	}{
		"on":                  {configured: true, want: http.StatusOK},
		"off":                 {want: http.StatusNotFound},
		"off on command line": {configured: true, noPage: true, want: http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Config{API: "127.0.0.1:0", Operator: "127.0.0.1:0", Page: tc.configured}
			store := memcoord.New()
			service := api.New(store, deployment.New(store, "services/bbs/deployments/eu", deployment.Config{}), api.Config{})
			a := New(cfg, transform.NewRegistry("bbs.example.com"), store, Options{NoPage: tc.noPage}, zap.NewNop())
			d, err := a.open()
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- d.Serve(ctx, service) }()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.api.Addr()+"/ui/", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != tc.want {
				t.Errorf("GET /ui/: %s, want %d", res.Status, tc.want)
			}
			stop()
			if err := <-served; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
