package access_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/refusal"
)

// TestAbsent: who is known is told in its own protocol of a version that is not served; who is
// not known is told nothing, and of other paths nobody is.
func TestAbsent(t *testing.T) {
	t.Parallel()
	cfg := access.GuardConfig{
		Table:    access.Table{"/s.v1.S/": {Least: access.Application}},
		Unproven: access.Identity{Name: "token:test"},
		Absent: func(path string) *connect.Error {
			if path != "/s.v9.S/M" {
				return nil
			}
			return refusal.New(refusal.VersionNotServed, errors.New("use v1"))
		},
	}
	ask := func(cfg access.GuardConfig, path string) *httptest.ResponseRecorder {
		g, err := access.NewGuard(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
		return w
	}
	if w := ask(cfg, "/s.v9.S/M"); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), `"VERSION_NOT_SERVED"`) {
		t.Errorf("a version that is not served: %d %s", w.Code, w.Body)
	}
	if w := ask(cfg, "/other"); w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "{") {
		t.Errorf("another path: %d %s", w.Code, w.Body)
	}
	// The role of the rest may call other paths, and versions that are not served stay refused.
	rest := cfg
	rest.Rest = access.Application
	if w := ask(rest, "/other"); w.Code != http.StatusForbidden {
		t.Errorf("somebody without a role asks for the rest: %d %s", w.Code, w.Body)
	}
	var err error
	if rest.Policy, err = access.NewPolicy([]access.Grant{{Identity: "token:test", Role: access.Application}}); err != nil {
		t.Fatal(err)
	}
	if w := ask(rest, "/s.v9.S/M"); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), `"VERSION_NOT_SERVED"`) {
		t.Errorf("a version that is not served, with a role for the rest: %d %s", w.Code, w.Body)
	}
	if w := ask(rest, "/other"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "404 page not found") {
		t.Errorf("the handler is not asked: %d %s", w.Code, w.Body)
	}
	rest.Unproven = access.Identity{}
	if w := ask(rest, "/other"); w.Code != http.StatusUnauthorized {
		t.Errorf("nobody known asks for the rest: %d %s", w.Code, w.Body)
	}
	cfg.Unproven = access.Identity{}
	if w := ask(cfg, "/s.v9.S/M"); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "v1") {
		t.Errorf("nobody known: %d %s", w.Code, w.Body)
	}
}
