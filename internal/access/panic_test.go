package access_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/inprocess"
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

// TestInnerHandlerPanics: the panic of a handler that another one calls in the process is in the log
// and in the audit, although the outer one gets it as an error. The error has a fixed text.
func TestInnerHandlerPanics(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	guard, err := access.NewGuard(access.GuardConfig{
		Unproven: access.Loopback, Table: access.Table{"/x": {Least: access.Viewer}}, Audit: access.NewAudit(log), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	inner := inprocess.Client(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("canary") }))
	answer := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://inner/", nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := inner.Do(req)
		if err == nil {
			_ = res.Body.Close()
			t.Error("the inner call succeeds")
			return
		}
		_, _ = io.WriteString(w, err.Error())
	})).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost/x", nil))
	if text := answer.Body.String(); !strings.Contains(text, "the handler panicked") || strings.Contains(text, "canary") {
		t.Errorf("the client gets %q", text)
	}
	lines := logs.FilterMessage("a handler panicked").All()
	if len(lines) != 1 || logs.FilterMessage("panicked").Len() != 1 {
		t.Fatalf("the log has %v", logs.All())
	}
	text := lines[0].ContextMap()
	if stack, _ := text["stack"].(string); text["panic"] != "canary" || !strings.Contains(stack, "panic_test.go") {
		t.Errorf("the log says %v", text)
	}
}
