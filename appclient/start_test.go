package appclient_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestOneRefusalEndsNoStart: a controller may not have read a new token yet, and another program may
// have its address. The start ends once all controllers that answer refuse the application.
func TestOneRefusalEndsNoStart(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	refusing := func(code connect.Code) string {
		c := startController(t, d)
		c.refuses = connect.NewError(code, errors.New("refused"))
		return c.server.URL
	}
	foreign := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(foreign.Close)
	late := startController(t, d)
	late.loseAnswers.Store(1)
	nobody := "http://" + accesstest.ClosedPort(t)
	for name, tc := range map[string]struct {
		controllers []string
		want        string // in the error; empty: it starts
	}{
		"another accepts":            {controllers: []string{refusing(connect.CodeUnauthenticated), refusing(connect.CodePermissionDenied), startController(t, d).server.URL}},
		"another accepts later":      {controllers: []string{refusing(connect.CodeInvalidArgument), late.server.URL}},
		"another program":            {controllers: []string{foreign.URL, startController(t, d).server.URL}},
		"all refuse":                 {controllers: []string{refusing(connect.CodePermissionDenied), refusing(connect.CodeUnauthenticated)}, want: "refused"},
		"all that answer refuse":     {controllers: []string{nobody, refusing(connect.CodePermissionDenied), foreign.URL}, want: "refused"},
		"it is too old for the call": {controllers: []string{refusing(connect.CodeUnimplemented)}, want: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			app, err := appclient.Open(t.Context(), appclient.Config{
				Controllers: tc.controllers, Application: "packages", Mongo: unconnected(t), StartTimeout: time.Hour,
			})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := app.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
