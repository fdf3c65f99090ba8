package access_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
)

// TestHandlerPanics: a handler's panic is in the log with its stack, and in the audit with who
// called. A handler that ends its connection on purpose is in neither.
func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		panics any
		lines  int
	}{{"index out of range", 2}, {http.ErrAbortHandler, 0}} {
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(core)
		guard, err := access.NewGuard(access.GuardConfig{
			Unproven: access.Loopback, Table: access.Table{"/x": {Least: access.Viewer}}, Audit: access.NewAudit(log), Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // it is this very value
					t.Errorf("the connection does not end: %v", v)
				}
			}()
			guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(tc.panics) })).
				ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/x", nil))
		}()
		if logs.Len() != tc.lines {
			t.Fatalf("%v: %d lines", tc.panics, logs.Len())
		}
		if tc.lines == 0 {
			continue
		}
		text := logs.FilterMessage("a handler panicked").All()[0].ContextMap()
		if stack, _ := text["stack"].(string); text["panic"] != tc.panics || !strings.Contains(stack, "panic_test.go") {
			t.Errorf("the log says %v", text)
		}
		if audit := logs.FilterMessage("panicked").All(); len(audit) != 1 || audit[0].LoggerName != access.AuditLog || audit[0].ContextMap()["identity"] != "loopback" {
			t.Errorf("the audit says %v", audit)
		}
	}
}
